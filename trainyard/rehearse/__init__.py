"""`trainyard rehearse`: the only command that imports `rehearsal`."""
