"""Starts the language host: `python -m engine.language_host`."""

from engine.language_host.server import main

main()
