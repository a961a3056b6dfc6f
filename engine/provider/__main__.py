"""Starts the provider plugin: `python -m engine.provider`."""

from engine.provider import main

main()
