"""Asks a cluster that exists, before anything of a stack is created in it: what runs there, whose it is, and
what of the stack file does not fit.
"""
