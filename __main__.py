"""Starts the provider when Pulumi runs this repository as a plugin (`pulumi package add`)."""

from trainyard_start import start

start("engine.provider")
