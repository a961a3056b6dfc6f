"""What starts ranks, and how they find each other: torchrun, mpirun, Kubeflow Trainer."""
