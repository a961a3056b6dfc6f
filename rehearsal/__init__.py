"""Rehearsal: any stack on the real engine, with fakes in the place of the clouds."""
