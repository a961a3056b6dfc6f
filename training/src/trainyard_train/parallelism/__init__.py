"""The device mesh of ranks, and the distribution of a model over it."""
