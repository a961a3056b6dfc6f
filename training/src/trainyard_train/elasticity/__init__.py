"""Elasticity: agent, rendezvous, heartbeats, preemption notices, restarts of failed ranks."""
