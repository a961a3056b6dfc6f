"""A batch script of Slurm on the nodes of a job: its steps, their ranks in Slurm's order, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from infra.platform.programs import program
from tests.processes import TIMEOUT_SECONDS, free_port, wait_for

NODES = 2


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def started(script: str, **more: str) -> list[subprocess.Popen[str]]:
    """Start the program as each node's container does; all of them are at one address here."""
    Path("a.sbatch").write_text(f"#!/bin/bash\n{script}\n")
    variables = {
        "PET_MASTER_ADDR": "127.0.0.1",
        "PET_NNODES": f"{NODES}",
        "TRAINYARD_RUN_DIR": "/run",
        **more,
    }
    command = [sys.executable, "-c", program("run_sbatch.py", port=f"{free_port()}"), "a.sbatch"]
    return [
        subprocess.Popen(
            command,
            env={**os.environ, **variables, "PET_NODE_RANK": f"{node}"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for node in range(NODES)
    ]


def ended(nodes: list[subprocess.Popen[str]]) -> tuple[list[int], list[list[str]]]:
    said = [each.communicate(timeout=TIMEOUT_SECONDS)[0].splitlines() for each in nodes]
    return [each.returncode for each in nodes], [sorted(lines) for lines in said]


OF_RANK = (
    "$SLURM_PROCID $SLURM_LOCALID $SLURM_NODEID $SLURM_NTASKS $SLURM_JOB_NUM_NODES $X $CUDA_VISIBLE_DEVICES"
)


def test_steps_run_on_all_nodes_in_slurms_order_of_ranks() -> None:
    script = f"""
    export X=$RANDOM HEAD=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
    echo $(srun -N1 -n1 -w $HEAD echo $HEAD $SLURM_TASKS_PER_NODE) $X
    srun --gpus-per-task=2 --kill-on-bad-exit=1 bash -c 'echo {OF_RANK}'
    [ "$SLURM_JOB_ID" -gt 0 ] && exit 3"""
    codes, (first, second) = ended(started(script, SLURM_NTASKS="3"))
    random = first[-1].split()[-1]
    assert first == [f"0 0 0 3 2 {random} 0,1", f"1 1 0 3 2 {random} 2,3", f"127.0.0.1 2,1 {random}"]
    assert (codes, second) == ([3, 3], [f"2 0 1 3 2 {random} 0,1"])


def test_a_failed_task_ends_its_step_with_its_code_and_the_script_goes_on() -> None:
    step = "srun bash -c '[ $SLURM_PROCID = 1 ] && exit 7; exec sleep 600'"
    assert ended(started(f"{step}\necho $?")) == ([0, 0], [["7"], []])
    assert ended(started("srun --container-image=x true || echo $?")) == ([0, 0], [["1"], []])
    assert ended(started("srun no-such-program")) == ([2, 2], [[], []])


@pytest.mark.parametrize("script", ["srun ./save", "./save; touch on"], ids=["by srun", "without"])
def test_a_preempted_script_lets_its_tasks_save_and_exits_as_preempted(script: str) -> None:
    save = "trap 'touch saved.$$; exit 0' TERM\ntouch up.$$\nwhile :; do sleep 0.1; done"
    Path("save").write_text(f"#!/bin/bash\n{save}\n")
    Path("save").chmod(0o755)
    nodes = started(script)
    number = NODES if "srun" in script else 1
    wait_for(lambda: len(list(Path().glob("up.*"))) == number)
    for each in nodes:
        each.send_signal(signal.SIGTERM)
    assert ended(nodes)[0] == [75, 75] and len(list(Path().glob("saved.*"))) == number
