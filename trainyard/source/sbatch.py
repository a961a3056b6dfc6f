"""Reads a batch script of Slurm: its `#SBATCH` lines become options of `trainyard run`.

In the job the script runs on the first node, and `srun` starts tasks on all (run_sbatch.py).
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import catalog
from infra.errors import InputError, Problem
from infra.stackfile.job import SBATCH
from trainyard.source.options import RunRequest, made_up

_LETTERS = (
    "A=account C=constraint D=chdir G=gpus J=job-name N=nodes a=array b=begin c=cpus-per-task d=dependency"
    " e=error n=ntasks o=output p=partition q=qos t=time w=nodelist x=exclude"
)
_SHORT = dict(each.split("=") for each in _LETTERS.split())
_VARIABLES = ("ntasks", "ntasks-per-node", "cpus-per-task", "gpus-per-task", "job-name")
"""Options that are variables of the job, as in Slurm where they are given."""
_READ = {*_VARIABLES, "nodes", "gres", "gpus", "gpus-per-node", "time"}
_SHARE = "the share of the node that the GPUs are"
_ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(("partition", "account"), "a queue of your team (--queue names one)"),
    **dict.fromkeys(("qos", "nice"), "--priority"),
    **dict.fromkeys(("mem", "mem-per-gpu", "mem-per-cpu", "cpus-per-gpu", "exclusive"), _SHARE),
    **dict.fromkeys(("output", "error", "open-mode"), "trainyard logs JOB"),
    **dict.fromkeys(("requeue", "no-requeue"), "a job restarts after a preemption"),
    **dict.fromkeys(("mail-type", "mail-user", "comment", "verbose", "export"), "nothing"),
}
"""Option that is not taken over → what is in its place."""
_WAYS: Mapping[str, str] = {
    "array": "one job per element, such as 3: trainyard run --detach --env SLURM_ARRAY_TASK_ID=3 {0};"
    " a search with early ends: trainyard job search",
    "constraint": "name the model of the GPUs: --gpus-per-node=h100:8",
    "dependency": "start it after `trainyard run` of the other job, which ends with that job",
}
"""Option that is refused → the way that is meant."""
_NEEDLESS = re.compile(r"\s*((?:module|ml)\s+\w+|(?:conda|mamba)\s+activate|source\s+\S*activate)\b.*")
"""Lines that look for programs of a cluster's hosts."""


def is_batch_script(asked: RunRequest) -> bool:
    """Whether a file with `#SBATCH` lines is to be run."""
    try:
        with Path((*asked.command, "")[0]).open(encoding="utf-8", errors="replace") as file:
            return re.search(r"^#SBATCH\s", file.read(1 << 16), re.MULTILINE) is not None
    except OSError:
        return False


def request_of(asked: RunRequest, log: Callable[[str], object]) -> RunRequest:
    """Return a batch script as a command line, whose own options come first.

    Args:
        asked: a command line whose command is the script and its arguments.
        log: takes a line for each option that is not taken over.

    Raises:
        InputError: with every line that cannot be kept.
    """
    script = Path(asked.command[0])
    text = script.read_bytes().decode(errors="replace")
    found = dict(_options(text))
    problems = list(_problems(script, text, found, asked))
    try:
        nodes, gpus, model = _size(found, asked.nodes)
        flags = {"name": made_up(found.get("job-name", script.stem)), **_time_limit(found.get("time", ""))}
    except ValueError as error:
        fix = "correct the line; `trainyard catalog machines` has models of GPUs"
        problems.append(Problem(str(script), str(error), "a value that a job here can have", fix))
    if problems:
        raise InputError(problems)
    for key in sorted(found.keys() & _ELSEWHERE.keys()):
        log(f"sbatch --{key} → {_ELSEWHERE[key]}")
    variables = [f"SLURM_{key.upper().replace('-', '_')}={found[key]}" for key in _VARIABLES if key in found]
    of_model = {"needs": {"accelerator": model}} if model else {}
    return replace(
        asked,
        words=(SBATCH, *asked.words),
        nodes=nodes,
        gpus=asked.gpus or gpus,
        flags={**flags, **of_model, **asked.flags, "files": [*asked.flags.get("files", ()), str(script)]},
        environment=(*variables, *asked.environment),
    )


def _options(text: str) -> Iterator[tuple[str, str]]:
    """Yield the options; as for sbatch, those behind the first command are comments."""
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            return
        words = shlex.split(line.removeprefix("#SBATCH"), comments=True) if line.startswith("#SBATCH") else []
        while words:
            word = words.pop(0)
            key, _, value = word[2:].partition("=") if word.startswith("--") else (word[1:2], "", word[2:])
            if not value and words and not words[0].startswith("-"):
                value = words.pop(0)
            yield _SHORT.get(key, key), value


def _size(found: Mapping[str, str], asked_nodes: int | None) -> tuple[int | None, int | None, str]:
    """Return nodes, GPUs over all nodes and their model; None and empty where the script leaves it open."""
    nodes = asked_nodes or int(found.get("nodes", "0").partition("-")[0]) or None
    tasks = int(found.get("ntasks") or int(found.get("ntasks-per-node", "1")) * (nodes or 1))
    times = {"gpus-per-node": nodes or 1, "gres": nodes or 1, "gpus": 1, "gpus-per-task": tasks}
    key = next((key for key in times if key in found), "")
    if not key:
        return nodes or 1, None, ""
    match = re.fullmatch(r"(?:gpu(?::|$))?(?:([A-Za-z][\w-]*)(?::|$))?(\d*)", found[key])
    if match is None or (key == "gres" and not found[key].startswith("gpu")):
        raise ValueError(f"--{key}={found[key]}")
    model = (match[1] or "").lower()
    if model and model not in (known := [each.name for each in catalog.accelerators()]):
        raise ValueError(f"--{key}={found[key]}: {model} is none of {', '.join(known)}")
    is_open = key == "gpus" or (key == "gpus-per-task" and "ntasks" in found)
    return nodes if is_open else nodes or 1, int(match[2] or 1) * times[key], model


def _time_limit(text: str) -> dict[str, str]:
    """Return the limit as a job has it: of minutes, minutes:seconds, hours:minutes:seconds, days-hours…."""
    if not text or text.upper() in {"UNLIMITED", "INFINITE"}:
        return {}
    days, has_days, rest = text.rpartition("-")
    parts = [int(each) for each in rest.split(":")]
    hours, minutes, seconds = (*parts, 0, 0)[:3] if has_days or len(parts) == 3 else (0, *parts, 0)[:3]
    whole = (int(days or 0) * 24 + hours) * 60 + minutes + (seconds > 0)
    return {"time_limit": f"{whole}m"}


def _problems(script: Path, text: str, found: Mapping[str, str], asked: RunRequest) -> Iterator[Problem]:
    """Yield all that a job here cannot keep."""
    if "\r\n" in text:
        yield Problem(str(script), "line ends of Windows", "line ends of Unix", f"sed -i 's/\\r$//' {script}")
    if not text.startswith("#!"):
        yield Problem(str(script), "no #! line", "a script as sbatch takes it", "begin it with #!/bin/bash")
    if script.is_absolute() or ".." in script.parts:
        yield Problem(str(script), "a script outside of the folder", "a file of it", "start in its folder")
    is_element = any(each.startswith("SLURM_ARRAY_TASK_ID=") for each in asked.environment)
    for key, value in found.items():
        way = _WAYS.get(key, "remove the line; docs/from-slurm.md has what is read")
        if key in {*_READ, *_ELSEWHERE} or (key == "array" and is_element):
            continue
        yield Problem(f"{script}: --{key}", value or "set", "what a job here has", way.format(script))
    for number, line in enumerate(text.splitlines(), 1):
        if _NEEDLESS.match(line):
            fix = "remove the line: the image brings CUDA and Python, --with adds packages"
            yield Problem(f"{script}:{number}", line.strip(), "programs of the image", fix)
