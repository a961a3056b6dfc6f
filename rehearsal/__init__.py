"""Rehearsal: any stack on the real engine, with stand-ins in the place of the clouds."""
