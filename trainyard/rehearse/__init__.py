"""`trainyard rehearse`: the only command that imports the fakes."""
