"""Metrics of a run, their analysis, and their export."""
