"""The mesh of ranks, and how a model is spread over it."""
