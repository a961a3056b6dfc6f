"""Checkpoints: written by all ranks, committed whole or not at all, kept in folders and object stores."""
