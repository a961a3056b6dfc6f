"""The engine (`pulumi`) as a process, its language host and our provider plugin: needed on every target.

Nothing is imported here: the engine starts two plugins at each operation, and waits for them.
"""
