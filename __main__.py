"""Starts the provider when Pulumi runs this repository as a plugin (`pulumi package add`)."""

from engine.provider import main

main()
