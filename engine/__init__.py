"""Runs Pulumi's engine (`pulumi`) as a process, with our language host and our provider plugin.

This package imports nothing: the engine starts two plugins at each operation, and waits for them.
"""
