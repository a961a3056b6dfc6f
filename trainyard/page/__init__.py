"""`trainyard ui`: a page of the cluster, its queues and its jobs, on this host's loopback.

It only reads, with the rights of whoever started it. `views` reads the cluster, `charts` draws, `server`
answers.
"""
