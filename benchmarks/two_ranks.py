"""Trainings of two or more ranks, ours and the peers', as subprocesses that benchmarks start, kill and
measure.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import psutil

from benchmarks.peers import PACKAGES, reach
from benchmarks.peers.ddp import newest, step_of
from benchmarks.peers.reads import FILE as READS
from trainyard_train.checkpointing.folder_store import FolderStore
from trainyard_train.contract import FILE, read_metrics

LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m"]
"""Starts a module on two ranks."""
TIMEOUT_SECONDS = 180
SAME = 1e-3
"""Maximum difference of the losses of two arms, relative to one of them."""


@dataclass
class Training(ABC):
    """A run in subprocesses, which may be started again after it was killed."""

    folder: Path
    settings: Mapping[str, Any]
    ranks: int = 2
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list, init=False)

    @property
    def run_dir(self) -> Path:
        """Folder of the run's files."""
        return self.folder / "run"

    @abstractmethod
    def start(self) -> None:
        """Start its processes."""

    @abstractmethod
    def steps(self) -> list[dict[str, Any]]:
        """The steps that were taken so far, in order: `time`, `step`, `attempt` and `loss` of all ranks."""

    @abstractmethod
    def saves(self) -> list[dict[str, Any]]:
        """The checkpoints that were made so far: `step`, and the `time` from which one could be loaded."""

    @abstractmethod
    def saved_step(self) -> int:
        """The step that another start would resume from, by what is on the disk."""

    def kill(self) -> None:
        """End all its processes at once, as a loss of their node does."""
        family = [each for each in self._processes if each.poll() is None]
        children = [child for each in family for child in psutil.Process(each.pid).children(recursive=True)]
        for each in self._processes:
            each.kill()
        for child in children:  # torchrun's workers have separate sessions
            with suppress(psutil.NoSuchProcess):
                child.kill()
        for each in self._processes:
            each.wait()
        self._processes.clear()

    def bytes_read(self) -> int:
        """Bytes of checkpoints that all ranks together read at the last start."""
        logs = [_lines(self.run_dir / READS.format(rank=rank)) for rank in range(self.ranks)]
        return sum(lines[-1]["bytes"] for lines in logs)

    def reach(self, step: int, attempt: int = 1) -> dict[str, Any]:
        """Wait for a step of that attempt, or the first one after it; returns it."""

        def found() -> list[dict[str, Any]]:
            return [line for line in self.steps() if line["attempt"] == attempt and line["step"] >= step]

        try:
            wait_for(lambda: bool(found()), self._processes)
        except (TimeoutError, RuntimeError) as error:
            wanted = f"{type(self).__name__}: step {step} of attempt {attempt}"
            raise type(error)(f"{wanted}: {error}\n{self._output()}") from None
        return found()[0]

    def _launch(self, command: Sequence[str], environment: Mapping[str, str] = os.environ) -> None:
        with self._stderr_file.open("ab") as file:
            self._processes.append(subprocess.Popen(command, env=environment, stderr=file))

    @property
    def _stderr_file(self) -> Path:
        return self.folder / "stderr.txt"

    def _output(self) -> str:
        """The end of its processes' output, which shows why they did not start."""
        return "\n".join(self._stderr_file.read_text(errors="replace").splitlines()[-40:])

    def _write_settings(self) -> str:
        path = self.folder / "settings.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**self.settings, "run_dir": str(self.run_dir)}))
        return str(path)


@dataclass
class Ours(Training):
    """Ranks of one node, as `trainyard_train.train` starts them in a pod, and restarts them in place."""

    def start(self) -> None:
        command = [sys.executable, "-m", "benchmarks.peers.ours", self._write_settings()]
        self._launch(command, os.environ | {"PET_NPROC_PER_NODE": str(self.ranks)})

    def steps(self) -> list[dict[str, Any]]:
        return self._events("step")

    def saves(self) -> list[dict[str, Any]]:
        return self._events("checkpoint")

    def saved_step(self) -> int:
        found = FolderStore(self.run_dir / "checkpoints").newest(lambda step, reason: None)
        return found.manifest.step if found else 0

    def kill_one(self) -> float:
        """Kill a worker, for the agent to start all again; returns when it was killed."""
        psutil.Process(self._processes[0].pid).children()[1].kill()
        return time.time()

    def _events(self, name: str) -> list[dict[str, Any]]:
        return [line for line in read_metrics(self.run_dir / FILE) if line["event"] == name]


@dataclass
class Bare(Training):
    """`benchmarks.peers.ddp` under torchrun, which starts all workers again when one ends."""

    launcher: ClassVar[Sequence[str]] = ("torch.distributed.run", "--standalone")
    saves_by: ClassVar[Sequence[str]] = ()
    """Arguments of `benchmarks.peers.ddp` that choose how it saves."""

    def start(self) -> None:
        options = [f"--nproc-per-node={self.ranks}", "--max-restarts=3"]
        program = ["-m", "benchmarks.peers.ddp", self._write_settings(), *self.saves_by]
        # Else restarted workers find failed ranks' addresses in their store, and hang (PyTorch 2.15).
        environment = os.environ | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"} | self._variables()
        self._launch([sys.executable, "-m", *self.launcher, *options, *program], environment)

    def _variables(self) -> dict[str, str]:
        return {}

    def steps(self) -> list[dict[str, Any]]:
        ranks = [self._lines(rank) for rank in range(self.ranks)]
        pids = list(dict.fromkeys(line["pid"] for line in ranks[0]))
        return [
            {
                **line,
                "attempt": 1 + pids.index(line["pid"]),
                "loss": sum(part["loss"] for part in parts) / len(parts),
            }
            for parts in zip(*ranks, strict=False)
            for line in parts[:1]
        ]

    def saves(self) -> list[dict[str, Any]]:
        return _lines(self.run_dir / "saves.jsonl")

    def saved_step(self) -> int:
        import torch

        saved = self.run_dir / "checkpoint.pt"
        return int(torch.load(saved, weights_only=True)["step"]) if saved.exists() else 0

    def kill_one(self) -> float:
        """Kill a worker, for torchrun to start all again; returns when it was killed."""
        psutil.Process(self._lines(1)[-1]["pid"]).kill()
        return time.time()

    def _lines(self, rank: int) -> list[dict[str, Any]]:
        return _lines(self.run_dir / f"steps-{rank}.jsonl")


@dataclass
class Dcp(Bare):
    """`benchmarks.peers.ddp` under torchrun, tuned as ours is, with `dcp.async_save` and `dcp.load`."""

    saves_by: ClassVar[Sequence[str]] = ("dcp",)

    def _variables(self) -> dict[str, str]:
        return {"THP_MEM_ALLOC_ENABLE": "1"}  # the agent sets it too

    def saved_step(self) -> int:
        found = newest(self.run_dir)
        return step_of(found) if found else 0


@dataclass
class Nvrx(Dcp):
    """`benchmarks.peers.ddp` as `Dcp` runs it, under the launcher of NVIDIA's resiliency extension."""

    launcher: ClassVar[Sequence[str]] = (
        "nvidia_resiliency_ext.fault_tolerance.launcher",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=127.0.0.1:0",
        "--ignore-missing-fault-tol-cfg",
    )

    def _variables(self) -> dict[str, str]:
        reach()
        return super()._variables() | {
            "PYTHONPATH": os.pathsep.join([str(PACKAGES), os.environ.get("PYTHONPATH", "")])
        }


def check_same_losses(one: Sequence[float], other: Sequence[float]) -> None:
    """Compare the losses of two arms, which must do the same work.

    Raises:
        ValueError: with the first step at which two differ.
    """
    for step, (loss, known) in enumerate(zip(one, other, strict=True), start=1):
        if abs(loss - known) > SAME * known:
            raise ValueError(f"step {step}: loss {loss} in one arm, {known} in another")


def wait_for(condition: Callable[[], bool], processes: Sequence[subprocess.Popen[bytes]] = ()) -> None:
    """Wait until the condition is true, for `TIMEOUT_SECONDS` at most.

    Raises:
        TimeoutError: the condition did not become true in time.
        RuntimeError: a process that it depends on has ended.
    """
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the training does not come to its steps")
        if ended := [each.returncode for each in processes if each.poll() is not None]:
            raise RuntimeError(f"a process of the training ended: exit code {ended[0]}")
        time.sleep(0.05)


def _lines(log: Path) -> list[dict[str, Any]]:
    if not log.exists():
        return []
    whole = log.read_text().rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]
