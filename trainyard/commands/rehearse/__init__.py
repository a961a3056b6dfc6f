"""`trainyard rehearse`: runs a stack's lifecycle with fake providers; the only command that imports the
fakes.
"""
