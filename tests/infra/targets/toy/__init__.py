"""The smallest possible target: the parts that a new one must have, and no more."""
