"""Any program of Python's as the ranks of a node: as torchrun would start it, and again where one is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from tests.processes import TIMEOUT_SECONDS, free_port, wait_for
from trainyard_train.elasticity.nodes import STORE_LINGER_SECONDS

SUM = """
import os, pathlib, signal, sys, torch, torch.distributed as dist
import helper
dist.init_process_group("gloo")
value = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(value)
lost = pathlib.Path(sys.argv[1])
if dist.get_rank() == int(sys.argv[2]) and not lost.exists():
    lost.touch()
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
tensor = torch.empty(64 << 20, dtype=torch.uint8)  # the kernel's flags of its memory, see proc(5)
memory = pathlib.Path("/proc/self/smaps").read_text().partition(f"\\n{tensor.data_ptr():x}-")[2]
assert " hg" in memory.partition("VmFlags:")[2].partition("\\n")[0]
names = ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_WORLD_SIZE", "OMP_NUM_THREADS")
print(" ".join([str(int(value)), helper.NAME, *(os.environ[name] for name in names)]) + "\\n", end="")
dist.destroy_process_group()
"""
ENDS = """
import atexit, sys, threading, time
atexit.register(lambda: print("flushed"))
threading.Thread(target=lambda: (time.sleep(0.2), print("joined"))).start()
sys.exit(eval(sys.argv[1]))
"""


PATIENT = f"""
import sys
from trainyard_train.elasticity import agent
agent._MAX_RESTART_SKEW_SECONDS = {TIMEOUT_SECONDS}
from trainyard_train.__main__ import main
sys.exit(main(sys.argv[1:]))
"""
"""A node that waits long for another that is late to start its ranks again."""


def start(
    folder: Path, words: Sequence[str], *, program: Sequence[str] = ("-m", "trainyard_train"), **output: str
) -> subprocess.Popen[str]:
    command = [sys.executable, *program, "run", *words]
    environment = {**os.environ, "PET_NPROC_PER_NODE": "1", **output}
    environment.pop("OMP_NUM_THREADS", None)
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    return process.returncode, out, errors


@pytest.mark.parametrize("killed_rank", [0, 3], ids=["rank 0, whose store it is", "a rank of the other node"])
def test_ranks_of_two_nodes_rendezvous_again_after_one_failed(tmp_path: Path, killed_rank: int) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "helper.py").write_text("NAME = 'helped'\n")
    (tmp_path / "sub" / "sum.py").write_text(SUM)
    place = {"PET_NNODES": "2", "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(free_port())}
    words = ("sub/sum.py", str(tmp_path / "lost"), str(killed_rank))
    place |= {"PET_NPROC_PER_NODE": "2"}
    nodes = [start(tmp_path, words, program=("-c", PATIENT), PET_NODE_RANK=str(n), **place) for n in (0, 1)]
    for number, (code, out, errors) in enumerate(map(ended, nodes)):
        assert code == 0, errors
        assert sorted(out.split("\n")) == ["", f"10 helped 0 2 {number} 4 1", f"10 helped 1 2 {number} 4 1"]
        assert "starting this node's again" in errors


def test_a_node_that_is_done_waits_for_one_that_comes_later_and_works_longer(tmp_path: Path) -> None:
    """Its ranks do not wait for the other's, and it holds the store of both."""
    (tmp_path / "naps.py").write_text("import sys, time; time.sleep(int(sys.argv[1])); print('done')\n")
    place = {"PET_NNODES": "2", "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(free_port())}
    nodes = [start(tmp_path, ["naps.py", "0"], PET_NODE_RANK="0", **place)]
    try:
        assert nodes[0].stdout is not None and nodes[0].stdout.readline() == "done\n"
        nodes.append(
            start(tmp_path, ["naps.py", str(int(STORE_LINGER_SECONDS) + 1)], PET_NODE_RANK="1", **place)
        )
        assert ended(nodes[1]) == (0, "done\n", "")
        assert ended(nodes[0]) == (0, "", "")
    finally:
        for each in nodes:
            each.kill()


def test_a_node_that_waits_for_others_exits_on_sigterm(tmp_path: Path) -> None:
    (tmp_path / "ends.py").write_text("import os; print(os.getpid())\n")
    place = {"PET_NNODES": "2", "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(free_port())}
    node = start(tmp_path, ["ends.py"], PET_NODE_RANK="0", **place)
    try:
        assert node.stdout is not None
        rank = int(node.stdout.readline())
        wait_for(lambda: not psutil.pid_exists(rank))  # else the signal is passed on to it
        with pytest.raises(subprocess.TimeoutExpired):
            node.wait(1)
        node.terminate()
        assert ended(node) == (0, "", "")
    finally:
        node.kill()


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        ("None", 0, ""),
        ("7", 7, ""),
        ("'no such layer'", 1, "no such layer"),
        ("1/0", 1, "ZeroDivisionError"),
        ("modle", 2, "NameError: name 'modle'"),
        ("__import__('modle')", 2, "No module named 'modle'"),
        ("1 +", 2, "SyntaxError"),
    ],
)
def test_it_ends_as_the_program_does_with_its_threads_and_hooks(
    tmp_path: Path, given: str, code: int, message: str
) -> None:
    (tmp_path / "ends.py").write_text(ENDS)
    found = ended(start(tmp_path, ["ends.py", given]))
    assert (found[0], found[1]) == (code, "joined\nflushed\n")
    assert message in found[2]


def test_a_module_runs_as_the_main_one(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.py").write_text("import sys; print(__name__, __package__, sys.argv[1:])\n")
    code, out, _ = ended(start(tmp_path, ["-m", "mine.train", "--lr", "1"]))
    assert (code, out) == (0, "__main__ mine ['--lr', '1']\n")


def test_a_program_that_ignores_a_preemption_notice_ends_by_it(tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text("import time; print('ready', flush=True); time.sleep(600)\n")
    process = start(tmp_path, ["waits.py"])
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.terminate()
    assert ended(process)[0] == 143
