"""Launchers of ranks, and how ranks find each other: torchrun, mpirun, Kubeflow Trainer."""
