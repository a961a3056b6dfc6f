"""Says where an installed pack is: `pulumi preview --policy-pack "$(trainyard-policies)"`."""

from __future__ import annotations

import sys
from pathlib import Path

PACK = Path(__file__).resolve().parent / "trainyard_policies_tree" / "policies"


def main() -> None:
    """Print the pack's folder."""
    sys.stdout.write(f"{PACK}\n")
