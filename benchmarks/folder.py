"""Benchmark: time from `trainyard run` in a folder of 5,000 files to the job's first step, against kubectl
with the code in place, and time to pack the folder.

Both arms start the same program on the same warm cluster, by the same runtime and launcher. The peer's code
is on the team's volume before the clock starts, as if it were built into an image. Our arm packs the folder,
asks the store whether it has the pack (it has, from the first round), and unpacks it in each pod.

Our arm reaches the cluster as team members do, through a context of a kubeconfig; kubectl uses the same
credential.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml

from benchmarks.arena import STEP_SECONDS, Arena, arena
from benchmarks.figures import Figure, Repeats, alternating
from infra.stackfile import parse_job
from trainyard.jobs.manifest import manifest

FILES, LINES = 5000, 40
ROUNDS = 3
TEAM, RUNTIME = "research", "torch-tcp"
PROGRAM = """
import os, pathlib, torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
if dist.get_rank() == 0:
    folder = pathlib.Path(os.environ["TRAINYARD_RUN_DIR"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "first-step").touch()
dist.destroy_process_group()
"""
_SYNC = re.compile(r"packed in (\d+\.\d) s: sha256|store \(asked in (\d+\.\d) s\)")


def measure() -> list[Figure]:
    """Run each arm six times, alternating, after one start of each that does not count."""
    with arena() as bench:
        bench.trainyard("up")
        code, store = bench.state / "code", _checkpoints(bench) / "baked"
        _write(code)
        _write(store)
        synced: list[float] = []
        numbers = iter(range(1000))
        arms = _ours(bench, code, numbers, synced), _peer(bench, numbers)
        for arm in arms:
            arm()
        synced.clear()
        taken = alternating(*arms, rounds=ROUNDS)
    ours, peer = Repeats("trainyard run", "s", taken[0]), Repeats("kubectl, code baked in", "s", taken[1])
    sync = Repeats("trainyard run", "s", tuple(synced))
    return [
        Figure(f"command → first step, folder of {FILES} files", ours, 1.3, peer),
        Figure(f"pack {FILES} files, and ask for them", sync, at_most=1),
    ]


def _write(folder: Path) -> None:
    """Write a repository of that many files, without the user's git configuration."""
    for index in range(FILES - 1):
        file = folder / f"package{index // 100:02}" / f"module{index}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"VALUE = {index}\n" * LINES)
    (folder / "train.py").write_text(PROGRAM)
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.com"]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message=first"]):
        subprocess.run([*git, *words], cwd=folder, check=True)


def _checkpoints(bench: Arena) -> Path:
    return bench.session.paths.cluster_data("local") / "checkpoints" / TEAM


def _as_member(bench: Arena) -> dict[str, str]:
    """Return the environment of a member, who needs no stack file: `TRAINYARD_CONTEXT` and its kubeconfig."""
    config = yaml.safe_load(bench.session.kubeconfig.read_text())
    config["contexts"][0]["context"]["namespace"] = f"team-{TEAM}"
    file = bench.state / "kubeconfig"
    file.touch(0o600)
    file.write_text(yaml.safe_dump(config))
    context = str(config["contexts"][0]["name"])
    return {**bench.environment, "KUBECONFIG": str(file), "TRAINYARD_CONTEXT": context}


def _ours(bench: Arena, code: Path, numbers: Iterator[int], synced: list[float]) -> Callable[[], float]:
    environment = _as_member(bench)

    def start() -> float:
        name = f"ours-{next(numbers)}"
        options = ["--gpus", "2", "--nodes", "2", "--name", name, "--detach"]
        command = [
            str(bench.session.paths.venv / "bin" / "trainyard"),
            "run",
            *options,
            "--",
            "python",
            "train.py",
        ]
        started = time.time()
        done = subprocess.run(command, cwd=code, env=environment, check=True, capture_output=True, text=True)
        seconds = _first_step(bench, name) - started
        synced.append(sum(float(text) for found in _SYNC.findall(done.stderr) for text in found if text))
        _remove(bench, name)
        return seconds

    return start


def _peer(bench: Arena, numbers: Iterator[int]) -> Callable[[], float]:
    def start() -> float:
        name = f"peer-{next(numbers)}"
        asked = {"name": name, "team": TEAM, "runtime": RUNTIME, "nodes": 2, "gpus": 1}
        job = parse_job({**asked, "command": ["python", "/mnt/checkpoints/baked/train.py"]})
        body = manifest(job, "run-001")
        started = time.time()
        bench.kubectl("apply", "--filename=-", given=json.dumps(body))
        seconds = _first_step(bench, name) - started
        _remove(bench, name)
        return seconds

    return start


def _first_step(bench: Arena, name: str) -> float:
    """Return when a job made its first step, as a Unix time."""
    deadline = time.monotonic() + STEP_SECONDS
    while time.monotonic() < deadline:
        for file in (_checkpoints(bench) / name).glob("*/first-step"):
            return file.stat().st_mtime
        time.sleep(0.02)
    raise TimeoutError(f"{name}: no step within {STEP_SECONDS:.0f} s")


def _remove(bench: Arena, name: str) -> None:
    """Delete everything of a job that could affect the next one."""
    bench.kubectl("delete", "trainjob", name, f"--namespace=team-{TEAM}", "--wait")
    bench.kubectl(
        "wait",
        "pods",
        f"--selector=jobset.sigs.k8s.io/jobset-name={name}",
        "--for=delete",
        f"--namespace=team-{TEAM}",
        "--timeout=120s",
    )
