"""Serves this repository as a Pulumi plugin: `pulumi package add <this repository>@<version>`."""

from engine.provider import main

main()
