"""The peers of the training benchmarks: what a team would write without this package."""

from __future__ import annotations

import sys

from engine.paths import REPOSITORY

PACKAGES = REPOSITORY / ".trainyard" / "peers"
"""Of `requirements/peers.txt`, put there by `make peers`; what the project itself needs is not among them."""


def reach() -> None:
    """Make the peers' packages importable, after all others.

    Raises:
        SystemExit: they are not installed.
    """
    if not PACKAGES.is_dir():
        raise SystemExit(f"{PACKAGES} is missing: run make peers")
    if str(PACKAGES) not in sys.path:
        sys.path.append(str(PACKAGES))
