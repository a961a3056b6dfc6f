"""A target that sells nothing: what a new one has to bring, and no more."""
