"""Failed, preempted and restarted ranks: agent, rendezvous, heartbeats, preemption notices."""
