"""The embedded cluster: a real Kubernetes control plane and nodes, as processes of this host."""
