"""GPU benchmark: kills one of two ranks that share a GPU, repeatedly, and measures the time to the next new
step, the bytes that restarted ranks read from the store, and the GPU memory that killed ranks keep. The final
weights must equal those of an undisturbed run.

The agent forks the ranks, so it must never have used the GPU itself: a process cannot use CUDA if the process
that forked it has used CUDA. gloo runs the collectives, since NCCL takes one rank per GPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import torch

from benchmarks.figures import Figure, Repeats
from benchmarks.gpu import hardware
from trainyard_train.contract import FILE, read_metrics
from trainyard_train.launchers import process_group

KILLS = 3 if hardware.ON_GPU else 1
STEPS, EVERY = (60, 5) if hardware.ON_GPU else (16, 4)
GPT: Mapping[str, int] = {"hidden": 512, "layers": 8, "heads": 8, "context": 256}
TINY: Mapping[str, int] = {"hidden": 16, "layers": 1, "heads": 2, "context": 16}


def measure() -> list[Figure]:
    """Train once undisturbed and once with kills; compare."""
    before = hardware.used_bytes()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        calm = _train(Path(folder) / "calm", kills=0)
        killed = _train(Path(folder) / "killed", kills=KILLS)
        left = hardware.used_bytes() - before
    where = hardware.where()
    resumed = [line for line in killed.lines if line["event"] == "resumed"]
    return [
        _figure(f"rank killed → first new step, two gloo ranks, on {where}", "s", killed.seconds, 5),
        _figure(
            f"weights that differ from an undisturbed run's after {KILLS} kills, on {where}",
            "",
            [float(calm.sha256 != killed.sha256)],
            0,
        ),
        _figure(
            "bytes that restarted ranks read from the store, the rest was in memory",
            "B",
            [float(sum(line["bytes_from_store"] for line in resumed))],
            0,
        ),
        _figure(f"memory of the GPU that killed ranks kept, on {where}", "MiB", [left / hardware.MIB], 64),
    ]


def _figure(claim: str, unit: str, values: list[float], at_most: float) -> Figure:
    return Figure(claim, Repeats("trainyard", unit, tuple(values)), at_most)


class _Ended:
    """A run that came to its end."""

    def __init__(self, run_dir: Path, seconds: list[float]) -> None:
        self.seconds = seconds
        self.lines = read_metrics(run_dir / FILE)
        self.sha256 = json.loads((run_dir / "final.json").read_text())["sha256"]


def _train(run_dir: Path, kills: int) -> _Ended:
    run_dir.mkdir()
    settings = run_dir / "settings.json"
    settings.write_text(json.dumps(_settings(run_dir)))
    command = [sys.executable, "-m", "benchmarks.gpu.ranks", str(settings)]
    with (run_dir / "stderr.txt").open("wb") as stderr:
        agent = subprocess.Popen(command, env=os.environ | {"PET_NPROC_PER_NODE": "2"}, stderr=stderr)
    try:
        seconds = [_kill_one(agent, run_dir, attempt) for attempt in range(1, kills + 1)]
        code = agent.wait()
    finally:
        agent.kill()
    if code:
        raise RuntimeError(f"exit code {code}: {(run_dir / 'stderr.txt').read_text()[-2000:]}")
    return _Ended(run_dir, seconds)


def _kill_one(agent: subprocess.Popen[bytes], run_dir: Path, attempt: int) -> float:
    """Kill a rank of this attempt, once it has saved; seconds until the next one's first step."""
    _wait_for(agent, run_dir, "checkpoint", attempt)
    begin = time.time()
    psutil.Process(agent.pid).children()[1].kill()
    return float(_wait_for(agent, run_dir, "step", attempt + 1)["time"]) - begin


def _wait_for(agent: subprocess.Popen[bytes], run_dir: Path, event: str, attempt: int) -> dict[str, Any]:
    while agent.poll() is None:
        for line in read_metrics(run_dir / FILE):
            if (line["event"], line["attempt"]) == (event, attempt):
                return line
        time.sleep(0.02)
    output = (run_dir / "stderr.txt").read_text()[-2000:]
    raise RuntimeError(f"ended with {agent.returncode} before a {event} of attempt {attempt}: {output}")


def _settings(run_dir: Path) -> dict[str, Any]:
    from benchmarks.gpu.tokens import write_shards

    model = GPT if hardware.ON_GPU else TINY
    shards = write_shards(str(run_dir))
    return {
        "run_dir": str(run_dir),
        "steps": STEPS,
        "seed": 7,
        "backend": "gloo",
        "strategy": "ddp",
        "restarts": KILLS,
        "pace_seconds": 0.05,
        "model": {"name": "gpt", "dropout": 0.1, **model},
        "data": {"name": "text", "path": shards, "batch_size_per_rank": 4},
        "optim": {"name": "adamw", "lr": 3e-4},
        "checkpoint": {"every_steps": EVERY},
        "evaluate_every": STEPS,
        "timeouts": {"rejoin": 60},
    }


def _all_on_one(local_rank: int) -> torch.device:
    """The device of a rank where all have the same GPU."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


if __name__ == "__main__":
    from trainyard_train import train

    process_group._device = _all_on_one
    train.main(["--config", sys.argv[1]])
