"""Metrics of a run, what they say, and where they are exported to."""
