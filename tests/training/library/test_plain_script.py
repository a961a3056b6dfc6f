"""`trainyard_train run` launches any Python program with torchrun's variables, and restarts failed ranks."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from tests.processes import TIMEOUT_SECONDS, wait_for
from tests.training.launch import rendezvous_variables
from trainyard_train.elasticity.nodes import STORE_LINGER_SECONDS

SUM = """
import os, pathlib, signal, sys, torch, torch.distributed as dist
import helper
dist.init_process_group("gloo")
value = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(value)
killed = pathlib.Path(sys.argv[1])
if dist.get_rank() == int(sys.argv[2]) and not killed.exists():
    killed.touch()
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


LONG_TIMEOUT = f"""
import sys
from trainyard_train.elasticity import agent
agent._MAX_RESTART_SKEW_SECONDS = {TIMEOUT_SECONDS}
from trainyard_train.__main__ import main
sys.exit(main(sys.argv[1:]))
"""
"""The launcher with a long timeout for another node that is late to restart its ranks."""


def start(
    folder: Path,
    arguments: Sequence[str],
    *,
    program: Sequence[str] = ("-m", "trainyard_train"),
    **variables: str,
) -> subprocess.Popen[str]:
    command = [sys.executable, *program, "run", *arguments]
    environment = {**os.environ, "PET_NPROC_PER_NODE": "1", **variables}
    environment.pop("OMP_NUM_THREADS", None)
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for the end; return the exit code, the standard output and the standard error."""
    out, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    return process.returncode, out, errors


@pytest.mark.parametrize("killed_rank", [0, 3], ids=["rank 0, whose store it is", "a rank of the other node"])
def test_ranks_of_two_nodes_rendezvous_again_after_one_failed(tmp_path: Path, killed_rank: int) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "helper.py").write_text("NAME = 'helped'\n")
    (tmp_path / "sub" / "sum.py").write_text(SUM)
    variables = {**rendezvous_variables(2), "PET_NPROC_PER_NODE": "2"}
    arguments = ("sub/sum.py", str(tmp_path / "killed"), str(killed_rank))
    nodes = [
        start(tmp_path, arguments, program=("-c", LONG_TIMEOUT), PET_NODE_RANK=str(n), **variables)
        for n in (0, 1)
    ]
    for number, (code, out, errors) in enumerate(map(ended, nodes)):
        assert code == 0, errors
        assert sorted(out.split("\n")) == ["", f"10 helped 0 2 {number} 4 1", f"10 helped 1 2 {number} 4 1"]
        assert "restarting this node's ranks" in errors


def test_a_node_that_is_done_waits_for_one_that_starts_later_and_works_longer(tmp_path: Path) -> None:
    """The first node has the rendezvous store of both nodes, and must not exit before the second one has."""
    (tmp_path / "naps.py").write_text("import sys, time; time.sleep(int(sys.argv[1])); print('done')\n")
    variables = rendezvous_variables(2)
    nodes = [start(tmp_path, ["naps.py", "0"], PET_NODE_RANK="0", **variables)]
    try:
        assert nodes[0].stdout is not None and nodes[0].stdout.readline() == "done\n"
        nodes.append(
            start(tmp_path, ["naps.py", str(int(STORE_LINGER_SECONDS) + 1)], PET_NODE_RANK="1", **variables)
        )
        assert ended(nodes[1]) == (0, "done\n", "")
        assert ended(nodes[0]) == (0, "", "")
    finally:
        for each in nodes:
            each.kill()


def test_a_node_that_waits_for_others_exits_on_sigterm(tmp_path: Path) -> None:
    (tmp_path / "ends.py").write_text("import os; print(os.getpid())\n")
    node = start(tmp_path, ["ends.py"], PET_NODE_RANK="0", **rendezvous_variables(2))
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
def test_it_exits_with_the_programs_code_after_its_threads_and_exit_hooks(
    tmp_path: Path, given: str, code: int, message: str
) -> None:
    (tmp_path / "ends.py").write_text(ENDS)
    found = ended(start(tmp_path, ["ends.py", given]))
    restarted = message == "ZeroDivisionError"  # once, in place, which may heal an exception
    assert (found[0], found[1]) == (code, "joined\nflushed\n" * (1 + restarted))
    assert message in found[2]


def test_a_module_runs_as_the_main_one(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.py").write_text("import sys; print(__name__, __package__, sys.argv[1:])\n")
    code, out, _ = ended(start(tmp_path, ["-m", "mine.train", "--lr", "1"]))
    assert (code, out) == (0, "__main__ mine ['--lr', '1']\n")


def test_a_program_that_does_not_handle_a_preemption_notice_is_terminated_by_it(tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text("import time; print('ready', flush=True); time.sleep(600)\n")
    process = start(tmp_path, ["waits.py"])
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.terminate()
    assert ended(process)[0] == 143
