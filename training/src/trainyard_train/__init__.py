"""What a team starts its own training from: distributed, exact to the bit, and at home on spot nodes.

It runs under `torchrun`, under Kubeflow Trainer's runtimes and on a laptop with one process, with the
same configuration file, and imports nothing of the rest of this project.
"""
