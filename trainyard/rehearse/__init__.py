"""`trainyard rehearse`: the one command that knows the fakes of `rehearsal`."""
