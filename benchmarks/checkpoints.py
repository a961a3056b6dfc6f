"""Benchmark: what a checkpoint costs a training on two ranks (step time and CPU time added, time blocked,
time until durable), against `torch.distributed.checkpoint.async_save` with fsync.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.figures import Figure, Repeats
from benchmarks.two_ranks import LAUNCH

ROUNDS = 15
"""Rounds, each of which runs the arms in the order A B C C B A."""


def measure() -> list[Figure]:
    """Train on two ranks with saves of ours, of the peer and without saves, alternating."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*LAUNCH, "benchmarks.peers.checkpoints", folder, str(ROUNDS)]
        subprocess.run(command, check=True)
        measured = json.loads((Path(folder) / "measured.json").read_text())

    def samples(arm: str, key: str) -> Repeats:
        name = {"ours": "trainyard", "peer": "dcp.async_save"}[arm]
        values = measured[arm]
        if key in {"total", "cpu"}:
            values = beyond(values, measured["none"], key)
        return Repeats(name, "ms", tuple(1000 * taken[key] for taken in values))

    return [
        Figure(claim, samples("ours", key), at_most, peer=samples("peer", key))
        for claim, key, at_most in (
            ("step time added by a checkpoint of 50 MB, two ranks", "total", 0.35),
            ("CPU time of the checkpoint", "cpu", 0.5),
            ("time until it is durable", "durable", 1.0),
            ("time for which the training is blocked", "blocked", 0.25),
        )
    ]


def beyond(
    taken: Sequence[Mapping[str, float]], control: Sequence[Mapping[str, float]], key: str
) -> list[dict[str, float]]:
    """Return, for each save, the time of its steps beyond as many steps of the control arm in that round."""
    rounds = [control[first : first + 2] for first in range(0, len(control), 2)]
    calm = [sum(one[key] for one in pair) / sum(one["steps"] for one in pair) for pair in rounds]
    return [{key: each[key] - each["steps"] * calm[number // 2]} for number, each in enumerate(taken)]
