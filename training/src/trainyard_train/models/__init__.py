"""Models that a configuration can name."""
