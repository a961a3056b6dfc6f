"""Starting the ranks of a run as processes, as pods of Kubeflow Trainer would."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training.metrics import FILE, read_metrics

PATIENCE_SECONDS = 180
"""For a start on a machine that is busy with other tests."""


@dataclass
class Ranks:
    """The processes of one attempt."""

    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def wait(self) -> list[tuple[int, str]]:
        """The exit code and the words of each rank; none is left running."""
        try:
            ends = [process.communicate(timeout=PATIENCE_SECONDS) for process in self.processes]
        finally:
            for process in self.processes:
                process.kill()
        return [(process.returncode, words) for process, (_, words) in zip(self.processes, ends, strict=True)]

    def send(self, rank: int, number: signal.Signals) -> None:
        self.processes[rank].send_signal(number)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def settings(run_dir: Path, **values: object) -> list[str]:
    chosen = {
        "run_dir": run_dir,
        "steps": 60,
        "seed": 7,
        "model.hidden": 16,
        "data.batch_size_per_rank": 32,
        "checkpoint.every_steps": 10,
        **values,
    }
    return [part for key, value in chosen.items() for part in ("--set", f"{key}={value}")]


def start(world_size: int, arguments: Sequence[str], *, only: Sequence[int] | None = None) -> Ranks:
    port = free_port()
    ranks = Ranks()
    for rank in only if only is not None else range(world_size):
        environment = os.environ | {
            "PET_NNODES": str(world_size),
            "PET_NPROC_PER_NODE": "1",
            "PET_NODE_RANK": str(rank),
            "PET_MASTER_ADDR": "127.0.0.1",
            "PET_MASTER_PORT": str(port),
            "NODE_NAME": f"node-{rank}",
        }
        command = [sys.executable, "-m", "training.train", *arguments]
        ranks.processes.append(
            subprocess.Popen(
                command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
        )
    return ranks


def run(world_size: int, arguments: Sequence[str]) -> str:
    """Run to the end; returns the sha256 of the final weights."""
    for code, words in start(world_size, arguments).wait():
        assert code == 0, words
    return sha256(Path(next(part.partition("=")[2] for part in arguments if part.startswith("run_dir="))))


def sha256(run_dir: Path) -> str:
    return str(json.loads((run_dir / "final.json").read_text())["sha256"])


def events(run_dir: Path, name: str) -> list[dict[str, Any]]:
    return [line for line in read_metrics(run_dir / FILE) if line["event"] == name]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)
