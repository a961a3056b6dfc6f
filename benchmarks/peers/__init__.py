"""The peers of the training benchmarks: programs that a team would write without this package, and `reach`,
which makes their packages importable.
"""

from __future__ import annotations

import sys

from engine.paths import REPOSITORY

PACKAGES = REPOSITORY / ".trainyard" / "peers"
"""Folder of the packages of `requirements/peers.txt` that `make peers` installs; those of the training
environment are not among them."""


def reach() -> None:
    """Make the peers' packages importable, after all others.

    Raises:
        SystemExit: the packages are not installed.
    """
    if not PACKAGES.is_dir():
        raise SystemExit(f"{PACKAGES} is missing: run make peers")
    if str(PACKAGES) not in sys.path:
        sys.path.append(str(PACKAGES))
