"""The engine runs this folder as a plugin: `pulumi package add <this repository>@<version>`."""

from engine.provider import main

main()
