"""Starts the provider plugin: `python -m engine.provider`."""

from __future__ import annotations

from engine.provider import main

main()
