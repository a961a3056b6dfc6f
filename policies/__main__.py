"""Starts the policy pack for the engine: `pulumi preview --policy-pack policies`."""

import sys
from pathlib import Path

# The engine runs this folder as a program, or in the wheel the one with the packages: import from the latter.
sys.path.insert(0, next(f"{up}" for up in Path(__file__).resolve().parents if (up / "catalog").is_dir()))

from policies.analyzer import serve
from policies.pack import POLICIES

if __name__ == "__main__":
    serve(POLICIES)
