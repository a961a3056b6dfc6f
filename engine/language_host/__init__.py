"""`pulumi-language-python`: the engine's language host for Python, where the official one is not available.

It finds the program's environment, reports the plugins that it needs to the engine, and runs programs, policy
packs and plugins written in Python with it.
"""
