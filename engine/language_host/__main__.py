"""Starts the language host: `python -m engine.language_host`."""

from __future__ import annotations

from engine.language_host import main

main()
