"""Field types for the name of a fabric class, in pools and in the needs of jobs."""

from typing import Annotated

import catalog
from infra.stackfile.base import one_of

RDMA = "rdma"
"""Value in a job's needs for any class that is not plain TCP."""
PLAIN = "tcp"
"""Class of plain TCP between pods."""
PLAIN_FABRICS = frozenset({PLAIN, "rocm"})
"""Fabric classes with plain TCP between pods."""


def _classes() -> list[str]:
    return [fabric.name for fabric in catalog.fabrics()]


FabricClass = Annotated[str, one_of(_classes)]
"""A class of the catalogue; `tcp` is plain TCP between pods.

There is one training runtime per class, because a class fixes resource names, environment and volumes.
"""
NeededFabric = Annotated[str, one_of(lambda: [*_classes(), RDMA])]
