"""Starts the policy pack for the engine: `pulumi preview --policy-pack policies`."""

from __future__ import annotations

import sys
from pathlib import Path

# The engine runs this folder as a program: make it a package again, so that the pack works in any project.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from policies.analyzer import serve
from policies.pack import POLICIES

if __name__ == "__main__":
    serve(POLICIES)
