"""What a checkpoint costs the training, against `torch.distributed.checkpoint.async_save` with fsync."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.figures import Figure, Samples

ROUNDS = 4
LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m"]


def measure() -> list[Figure]:
    """Both arms save the same two ranks' training, in turn."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*LAUNCH, "benchmarks.peers.checkpoints", folder, str(ROUNDS)]
        subprocess.run(command, check=True)
        measured = json.loads((Path(folder) / "measured.json").read_text())

    def samples(arm: str, key: str) -> Samples:
        name = {"ours": "trainyard", "peer": "dcp.async_save"}[arm]
        return Samples(name, "ms", tuple(1000 * taken[key] for taken in measured[arm]))

    return [
        Figure(claim, samples("ours", key), at_most, peer=samples("peer", key))
        for claim, key, at_most in (
            ("step time added by a checkpoint of 50 MB, two ranks", "added", 0.5),
            ("CPU time that it takes, which other work on the machine hardly touches", "cpu", 0.5),
            ("time until it is durable", "durable", 1.0),
            ("time for which the training stands still", "blocked", 0.5),
        )
    ]
