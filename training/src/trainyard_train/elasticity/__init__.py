"""Ranks that are lost, preempted and started again: agent, rendezvous, heartbeats, preemption notices."""
