"""The component package: `trainyard:index:Cluster`, `Fleet` and `TrainingJob` in any Pulumi program.

The provider plugin starts this package as a process for each component of a program (`construct`).
"""
