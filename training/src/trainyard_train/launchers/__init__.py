"""Joins ranks that torchrun, mpirun or Kubeflow Trainer has started into one process group."""
