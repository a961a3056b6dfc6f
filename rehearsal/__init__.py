"""Rehearsal: runs any stack on the real engine, with fake providers instead of the clouds."""
