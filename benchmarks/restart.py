"""From the death of a worker to the first new step, against bare torchrun that saves every N steps."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from benchmarks.figures import Figure, Samples, alternating
from training.metrics import FILE, read_metrics

SETTINGS: dict[str, Any] = {
    "steps": 100_000,
    "seed": 7,
    "model": {"name": "convnet", "hidden": 16, "dropout": 0},
    "checkpoint": {"every_steps": 20},
    "pace_seconds": 0.05,
    "evaluate_every": 100_000,
}
KILL_AFTER_STEP = 30
ROUNDS = 3
PATIENCE_SECONDS = 180


def measure() -> list[Figure]:
    """Kill one of two workers once it is past its first checkpoint; wait for the next step."""
    ours, peer = alternating(_ours, _peer, ROUNDS)
    return [
        Figure(
            "worker killed → first new step, two ranks",
            Samples("trainyard", "s", ours),
            at_most=0.5,
            peer=Samples("torchrun --max-restarts", "s", peer),
        )
    ]


def _ours() -> float:
    """Ranks as in pods of one process each, all started again when one ends, as JobSet does."""
    with tempfile.TemporaryDirectory() as folder:
        settings = _settings(folder)
        log = Path(folder) / "run" / FILE
        workers = _start_pods(settings)
        try:
            _wait(lambda: _reached(_steps(log)))
            workers[1].kill()
            begin = time.time()
            for worker in workers:
                worker.wait()
            workers = _start_pods(settings)
            return _first(lambda: [line for line in _steps(log) if line["attempt"] == 2], begin)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()


def _peer() -> float:
    with tempfile.TemporaryDirectory() as folder:
        settings = _settings(folder)
        log = Path(folder) / "run" / "steps-0.jsonl"
        options = ["--standalone", "--nproc-per-node=2", "--max-restarts=3"]
        torchrun = [sys.executable, "-m", "torch.distributed.run", *options]
        command = [*torchrun, "-m", "benchmarks.peers.ddp", settings]
        agent = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            _wait(lambda: _reached(_lines(log)))
            pids = [_lines(log.with_name(f"steps-{rank}.jsonl"))[-1]["pid"] for rank in (0, 1)]
            os.kill(pids[1], signal.SIGKILL)
            begin = time.time()
            return _first(lambda: [line for line in _lines(log) if line["pid"] != pids[0]], begin)
        finally:
            workers = psutil.Process(agent.pid).children(recursive=True)  # they have sessions of their own
            agent.kill()
            agent.wait()
            for worker in workers:
                worker.kill()


def _settings(folder: str) -> str:
    path = Path(folder) / "settings.json"
    path.write_text(json.dumps({**SETTINGS, "run_dir": str(Path(folder) / "run")}))
    return str(path)


def _start_pods(settings: str) -> list[subprocess.Popen[bytes]]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    place = {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "1",
        "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": port,
    }
    command = [sys.executable, "-m", "training.train", "--config", settings]
    return [
        subprocess.Popen(command, env=os.environ | place | {"PET_NODE_RANK": rank}, stderr=subprocess.DEVNULL)
        for rank in ("0", "1")
    ]


def _lines(log: Path) -> list[dict[str, Any]]:
    if not log.exists():
        return []
    whole = log.read_text().rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def _steps(log: Path) -> list[dict[str, Any]]:
    return [line for line in read_metrics(log) if line["event"] == "step"]


def _reached(lines: list[dict[str, Any]]) -> bool:
    return any(line["step"] >= KILL_AFTER_STEP for line in lines)


def _first(lines: Callable[[], list[dict[str, Any]]], begin: float) -> float:
    _wait(lambda: bool(lines()))
    return float(lines()[0]["time"] - begin)


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the training does not come to its steps")
        time.sleep(0.05)
