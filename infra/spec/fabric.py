"""Fabric classes: what a job asks for when its ranks talk to each other."""

from __future__ import annotations

from typing import Literal

FabricClass = Literal[
    "none",
    "efa",
    "efav2",
    "efav3",
    "efav4",
    "efav4-b300",
    "efa-dra",
    "efav2-dra",
    "efav3-dra",
    "efav4-dra",
    "efav4-b300-dra",
    "tcpxo",
    "roce",
    "roce-dra",
    "roce-nvl72",
    "ib-hdr",
    "ib-ndr",
    "ib-ndr-rocm",
    "ib-coreweave",
    "ib-coreweave-nvl72",
    "ib-shared",
    "ib-shared-rocm",
    "ib-shared-nvl72",
    "nvl72",
    "ib-sriov",
    "ib-hostdev",
    "rocm",
    "ici",
]
"""The classes of the catalogue; `none` is plain TCP between pods.

There is one training runtime per class, because a class fixes resource names, environment and volumes.
"""
