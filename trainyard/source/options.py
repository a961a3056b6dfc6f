"""Parses the arguments of `trainyard run` (job.yaml, command, flags) into one typed job, and checks that its
program can start.
"""

import re
import secrets as random
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from infra.common import names
from infra.errors import InputError, Problem
from infra.stackfile import JobSpec, Stack, parse_job
from infra.stackfile.job import starts_by_rank
from infra.stackfile.source import SpecSource, read_whole
from infra.targets.kubeconfig import namespace_of
from trainyard.source.files import Listing
from trainyard.source.foreign import foreign

TRAIN_JOB = "TrainJob"
_MAX_BASE = 32
"""Maximum length of the first part of a generated name: `-` and six digits are added."""


@dataclass(frozen=True)
class RunRequest:
    """The words of one command line."""

    words: Sequence[str] = ()
    """A job.yaml, a command, or both; the file is first."""
    gpus: int | None = None
    nodes: int | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)
    """Keys of a job that flags have set."""
    environment: Sequence[str] = ()
    """Variables of the job, as `NAME=VALUE`."""
    secrets: Sequence[str] = ()
    """Secrets of the job, as `NAME`, `NAME=VARIABLE` or `NAME=@FILE`."""
    takes_folder: bool = True
    run: str = ""
    """Run to continue; empty: a new one, or the one that has not finished."""

    @property
    def file(self) -> Path | None:
        """The job.yaml, if one is named."""
        named = self.words and self.words[0].endswith((".yaml", ".yml"))
        return Path(self.words[0]) if named else None

    @property
    def has_size_of_file(self) -> bool:
        """Whether a job.yaml states the job's size, and no option."""
        return self.file is not None and self.gpus is None and self.nodes is None

    @property
    def command(self) -> tuple[str, ...]:
        """The command, if one is given."""
        return tuple(self.words[1:] if self.file else self.words)


@dataclass(frozen=True)
class Written:
    """A job.yaml as data, with the line and column of each value."""

    data: Mapping[str, Any]
    source: SpecSource

    @property
    def is_train_job(self) -> bool:
        """Whether the file is a Kubeflow TrainJob."""
        return self.data.get("kind") == TRAIN_JOB


def written(asked: RunRequest) -> Written:
    """Read the job.yaml, if there is one.

    Raises:
        InputError: the file cannot be read or is another launcher's, or no command is given.
    """
    if asked.file is None:
        if not asked.command:
            fix = "trainyard run -- python train.py, or trainyard run job.yaml"
            raise InputError([Problem("COMMAND", "nothing", "a command, or a job.yaml", fix)])
        return Written({}, SpecSource("command line", key="command line"))
    if (problem := foreign(asked.file)) is not None:
        raise InputError([problem])
    data, source = read_whole(asked.file)
    return Written(data, source)


def named_team(asked: RunRequest, found: Written, context: str) -> str:
    """Return the team that is named, else that of the context's namespace; empty where there is neither."""
    if named := asked.flags.get("team") or found.data.get("team"):
        return str(named)
    namespace = namespace_of(context) if context else ""
    team = names.team_of(namespace)
    return team if team != namespace else ""


def job_of(asked: RunRequest, found: Written, team: str, folder: Path, stack: Stack | None = None) -> JobSpec:
    """Return the job, with a name where it has none; the newest of each secret is not looked up yet.

    Raises:
        InputError: with everything that is wrong in the file and the flags, and on the stack if one is given.
    """
    flags = dict(asked.flags)
    if asked.command:
        flags["command"] = list(asked.command)
    if asked.nodes is not None:
        flags["nodes"] = asked.nodes
    variables = _pairs(asked.environment)
    written_ones = found.data.get("env") or {}
    if variables and isinstance(written_ones, dict):  # any other value is refused below
        flags["env"] = {**written_ones, **variables}
    defaults = {"name": made_up(folder.name), "team": team}
    return parse_job({**defaults, **found.data, **flags}, found.source, stack)


def made_up(base: str) -> str:
    """Return a name for a job that was given none; no other has it."""
    plain = re.sub(r"[^a-z0-9]+", "-", base.lower()).lstrip("-0123456789")[:_MAX_BASE].rstrip("-")
    return f"{plain or 'job'}-{random.token_hex(3)}"


def _pairs(given: Sequence[str]) -> dict[str, str]:
    problems = [
        Problem("--env", each, "NAME=VALUE", "write the variable, '=', and its value")
        for each in given
        if "=" not in each
    ]
    if problems:
        raise InputError(problems)
    return {name: value for name, _, value in (each.partition("=") for each in given)}


def check_program(job: JobSpec, listing: Listing) -> None:
    """Check that the program's file is among the uploaded ones, and that a container can start it.

    Raises:
        InputError: the container cannot start the command.
    """
    command = job.command or ("",)
    wrong = _not_a_program(command, listing)
    if wrong is None and starts_by_rank(command):
        wrong = _not_pythons(command, listing, has_path="PYTHONPATH" in job.environment)
    if wrong is not None:
        got, allowed, fix = wrong
        raise InputError([Problem("command", got, allowed, fix)])


_Wrong = tuple[str, str, str]
"""A problem's value, what is allowed, and the next step."""


def _not_a_program(command: Sequence[str], listing: Listing) -> _Wrong | None:
    """Return why a container cannot start a command that a shell would accept; None where it can."""
    first, allowed = command[0], "a program, and its arguments"
    if first in listing.names and "/" not in first:  # a shell would look for it in PATH
        way = (
            f"python {first}" if first.endswith(".py") else f"./{first}, if it is executable; else sh {first}"
        )
        return first, allowed, f"write {way}"
    if len(command) == 1 and " " in first:
        fix = f"write sh -c {shlex.quote(first)}, or remove the quotes"
        return first, f"{allowed}, as separate words", fix
    notebook = next((word for word in command[1:3] if word.endswith(".ipynb")), "")
    if notebook and starts_by_rank(command):
        fix = f"convert it: jupyter nbconvert --to script {notebook}"
        return f"{notebook}, a notebook", "a Python program", fix
    if re.fullmatch(r"[A-Za-z_]\w*=.*", first, re.DOTALL):
        return first, f"{allowed}; variables by --env", f"write --env {first} before --"
    return None


def _not_pythons(command: Sequence[str], listing: Listing, *, has_path: bool) -> _Wrong | None:
    """Return why Python would not find its program, or not understand it."""
    words = [word for word in command[1:] if word != "-u"]
    if not words or not words[0]:
        return None
    program, allowed = words[0], "a file of the code"
    if program == "-m":
        return None if has_path else _beside_path((*words, "")[1], listing)
    path = str(PurePosixPath(program))
    if program.startswith("/") or path in listing.names:
        return None
    if path in listing.untracked:
        fix = f"git add {program} (no commit is needed), or name it: --include {program}"
        return f"{program}, which git does not track", allowed, fix
    if any(f"{path}/".startswith(f"{each.rstrip('/')}/") for each in listing.ignored):
        fix = f"remove it from .gitignore, or name it: --include {program}"
        return f"{program}, which git ignores", allowed, fix
    fix = "start in the folder that has it; for a program of the image write its absolute path"
    return f"{program}: not among the code's files", allowed, fix


def _beside_path(module: str, listing: Listing) -> _Wrong | None:
    """Return where a module is that Python would not find: in `src`, of a package that is not installed."""
    top = module.partition(".")[0]
    found = [name for name in listing.names if name.startswith((f"{top}/", f"src/{top}/"))]
    if f"{top}.py" in listing.names or not found or any(name.startswith(f"{top}/") for name in found):
        return None
    return (
        f"-m {module}, which is in src",
        "a module that Python finds in the folder",
        "add --env PYTHONPATH=src",
    )
