"""`Snapshot`: what one rank saves of one step, by value; `merge`: the manifest's description of all ranks'
snapshots.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from trainyard_train.checkpointing.checkpoint import Manifest
from trainyard_train.checkpointing.digests import Data
from trainyard_train.parallelism.mesh import Mesh


@dataclass(frozen=True)
class Snapshot:
    """A copy of this rank's state, valid until the next one is made, which takes its memory."""

    data: Data
    """Content of this rank's file."""
    manifest: Manifest
    """All but the files and their description."""
    learned: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Copies of the weights and moments, which must be finite, by name."""
    description: Mapping[str, Any] = field(default_factory=dict)
    """What a `Run` tracks: tensors (`t:path`), values (`v:path`), objects (`o:name`); empty in other runs."""
    compared: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Copies of the tensors that may differ between ranks, by `path@offset`."""
    advice: str = ""
    """What to do about values that are not finite."""

    def problem(self) -> str:
        """Name a weight or a moment that is not finite; empty if there is none.

        The loss shows it one step later, which is too late: each attempt would resume from such weights.
        """
        for name, values in self.learned.items():
            # A sum takes a quarter of the time of a test of each element, and can only overflow.
            if not values.sum().isfinite() and not values.isfinite().all():
                return f"{name} has NaN or infinite values{self.advice}"
        return ""

    def report(self, mesh: Mesh, key: str) -> str:
        """Differences of this rank's description from rank 0's (there: all of it).

        Args:
            mesh: the ranks, which all call it.
            key: prefix of keys in their store.
        """
        own = dict(self.description)
        if not own:
            return "{}"
        if mesh.world_size > 1:
            own |= {f"d:{name}": _sha256(values) for name, values in self.compared.items()}
        text = json.dumps(own)  # not sorted: dicts come back in their order
        digest = hashlib.sha256(text.encode()).hexdigest()
        if mesh.is_rank0:
            mesh.store.set(f"{key}/state", text)
        if mesh.broadcast(f"{key}/state-digest", digest) == digest:
            return text if mesh.is_rank0 else "{}"
        first = json.loads(mesh.store.get(f"{key}/state"))
        return json.dumps({name: value for name, value in own.items() if first.get(name) != value})


def merge(reports: Iterable[str]) -> dict[str, Any]:
    """The manifest's `state` of all ranks' reports, rank 0's first; empty if nothing is described.

    `by_rank` has the paths of what is not equal on all ranks.
    """
    parts: dict[str, dict[str, Any]] = {"t": {}, "v": {}, "o": {}, "d": {}}
    differ = set()
    for report in reports:
        for key, value in json.loads(report).items():
            part, _, path = key.partition(":")
            if parts[part].setdefault(path, value) != value:
                differ.add(path.rpartition("@")[0] if part == "d" else path)
    state = {"tensors": parts["t"], "values": parts["v"], "objects": parts["o"], "by_rank": sorted(differ)}
    return state if any(state.values()) else {}


def _sha256(values: torch.Tensor) -> str:
    return hashlib.sha256(values.contiguous().flatten().view(torch.uint8).numpy().data).hexdigest()
