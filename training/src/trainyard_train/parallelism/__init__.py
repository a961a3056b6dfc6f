"""The device mesh of the ranks, and the parallelization of a model over it."""
