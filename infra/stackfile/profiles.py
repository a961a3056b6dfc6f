"""Profiles of a stack file (`profile: dev | team | production`): sets of defaults for keys it leaves out.

A value that the file has always wins. `trainyard stack validate --expand` prints what a profile has set.
"""

from collections.abc import Iterator, Mapping
from typing import Literal, get_args

ProfileName = Literal["dev", "team", "production"]
PROFILES: tuple[ProfileName, ...] = get_args(ProfileName)
SYSTEM = "pools[system]"
"""Path of the system pool."""
Row = tuple[object, object, object]
"""Values of a key in the order of `PROFILES`."""

TABLE: Mapping[str, Mapping[str, Row]] = {
    # of every target
    "": {"logs.retention_days": (30, 30, 90)},
    # of a target, or of one of its filesystems
    "aws": {
        f"{SYSTEM}.nodes": (2, 3, 3),
        f"{SYSTEM}.machine": ("m7i.xlarge", "m7i.2xlarge", "m7i.2xlarge"),
        "target.network.nat": ("one", "one", "per-zone"),
    },
    "aws efs": {"storage.checkpoints.snapshot_days": (0, 7, 30)},
    "azure": {
        f"{SYSTEM}.nodes": (2, 3, 3),
        f"{SYSTEM}.machine": ("Standard_D4s_v5", "Standard_D8s_v5", "Standard_D8s_v5"),
    },
    "azure netapp": {
        "target.filesystem.service_level": ("standard", "premium", "premium"),
        "storage.checkpoints.snapshot_days": (0, 7, 30),
    },
    "gcp": {
        f"{SYSTEM}.nodes": (2, 3, 3),
        f"{SYSTEM}.machine": ("e2-standard-4", "e2-standard-8", "e2-standard-8"),
    },
    "gcp filestore": {"target.filesystem.tier": ("zonal", "zonal", "regional")},
    "local": {f"{SYSTEM}.nodes": (1, 1, 1)},
    "onprem": {f"{SYSTEM}.nodes": (1, 2, 3)},
}
"""Section → key → its value in each profile."""


def values(profile: str, kind: str, filesystem: str) -> Iterator[tuple[str, object]]:
    """Yield the keys and values of a profile for a target and its kind of filesystem."""
    if profile in PROFILES:
        for section in ("", kind, f"{kind} {filesystem}"):
            for key, row in TABLE.get(section, {}).items():
                yield key, row[PROFILES.index(profile)]
