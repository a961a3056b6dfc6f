"""Datasets: where they are, how they are staged and read, and the global order of samples."""
