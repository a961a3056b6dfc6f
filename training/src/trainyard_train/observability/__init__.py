"""A run's metrics: the log, the analysis, and the export to trackers."""
