"""The engine (`pulumi`) as a process: operations, typed events while they run, recovery before them."""

from __future__ import annotations

from local.engine.engine import Engine
from local.engine.events import Result, Step

__all__ = ["Engine", "Result", "Step"]
