"""Rehearses any stack on the real engine, with fakes in place of the clouds."""
