"""`pulumi-language-python`: the engine's language host for Python, where the official one cannot be had.

It finds the program's environment, tells the engine which plugins that environment needs, and runs programs,
policy packs and plugins written in Python with it.
"""

from __future__ import annotations

from engine.language_host.server import main

__all__ = ["main"]
