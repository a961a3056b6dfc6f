"""`python -m trainyard_train demo`: a kill and an exact resume on one machine, without a cluster."""
