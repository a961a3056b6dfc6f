"""The Pulumi engine as a process, its language host and our provider plugin, for every target.

This package imports nothing: the engine starts two plugins at each operation, and waits for them.
"""
