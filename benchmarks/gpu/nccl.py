"""GPU benchmark: time until NCCL's watchdog ends a process whose collective hangs (by SIGABRT, with a flight
record), and time to abort a process group with a collective under way.

The collective waits behind a kernel that spins, as one does behind a peer that has ended. How the agent
handles the SIGABRT that follows is tested without a GPU, with gloo and an abort of the process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from benchmarks.figures import Figure, Repeats
from benchmarks.gpu import hardware
from trainyard_train.elasticity import startup

TIMEOUT_SECONDS = 5.0
"""Timeout of the process group, in seconds."""
_SPIN_CYCLES = 1 << 38
"""Cycles for which a kernel spins: more than two minutes on any GPU."""


def measure() -> list[Figure]:
    """Measure a process whose collective hangs, and one that aborts its group."""
    with tempfile.TemporaryDirectory() as folder:
        hung, code = _timed("hang", folder)
        dumps = len(list(Path(folder).glob("watchdog-flight-*")))
        aborted, other = _timed("abort", folder)
    where = hardware.where()
    ends = f"a collective that hangs → the process is ended, timeout of {TIMEOUT_SECONDS:g} s, on {where}"
    return [
        _figure(ends, "s", hung, TIMEOUT_SECONDS + 15),
        _figure(
            "faults of that end: exit not by SIGABRT, no flight record",
            "",
            float((code != -signal.SIGABRT) + (not dumps)),
            0,
        ),
        _figure(f"abort of a group with a collective under way, on {where}", "s", aborted, 10),
        _figure("failed aborts", "", float(other != 0), 0),
    ]


def _figure(claim: str, unit: str, value: float, at_most: float) -> Figure:
    return Figure(claim, Repeats("trainyard", unit, (value,)), at_most)


def _timed(what: str, folder: str) -> tuple[float, int]:
    """Run `main` in a subprocess: seconds from its first line to its end, and the exit code."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.gpu.nccl", what, folder], stdout=subprocess.PIPE
    )
    assert process.stdout
    process.stdout.readline()
    begin = time.monotonic()
    code = process.wait()
    return time.monotonic() - begin, code


def _group(folder: str) -> None:
    """Create a process group of this process alone, as the trainer creates one."""
    startup.record_collectives(Path(folder))
    backend = "nccl" if hardware.ON_GPU else "gloo"
    device = torch.device("cuda", 0) if hardware.ON_GPU else None
    seconds = timedelta(seconds=TIMEOUT_SECONDS)
    dist.init_process_group(
        backend, store=dist.HashStore(), rank=0, world_size=1, timeout=seconds, device_id=device
    )
    dist.all_reduce(torch.ones(1, device=hardware.DEVICE))
    hardware.wait()


def _under_way() -> None:
    """Start a collective that never ends."""
    if hardware.ON_GPU:
        torch.cuda._sleep(_SPIN_CYCLES)
    dist.all_reduce(torch.ones(1, device=hardware.DEVICE), async_op=True)


def main() -> None:
    """Run the part that the first argument names."""
    what, folder = sys.argv[1:]
    _group(folder)
    _under_way()
    sys.stdout.write("begins\n")
    sys.stdout.flush()
    if what == "abort":
        abort = getattr(dist.distributed_c10d, "_abort_process_group", dist.destroy_process_group)
        (abort if hardware.ON_GPU else dist.destroy_process_group)()
        os._exit(0)
    if not hardware.ON_GPU:
        (Path(folder) / "watchdog-flight-0").touch()
        os.abort()
    time.sleep(10 * TIMEOUT_SECONDS)  # the watchdog is a thread


if __name__ == "__main__":
    main()
