"""Checkpoints: written by all ranks, committed atomically, stored in folders and object stores."""
