"""`trainyard-controller`: the program that runs in the cluster for what goes on without a command.

Its pods have the standard library alone, and these files from a ConfigMap. Each task acts with the rights of
a service account of its own, and believes only what the kubelet, the scheduler and Kueue write.
"""
