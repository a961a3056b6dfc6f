"""Exit codes, and errors that state the path, what was found, what is allowed and the next step.

A leaf module: `local`, `trainyard` and `rehearsal` import it too.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

GO_ON = "fix it and run the same command again: completed work is not repeated"
"""The next step where no better one is known."""


class ExitCode(IntEnum):
    """Exit codes of the command line, as listed in docs/troubleshooting.md."""

    OK = 0
    FAILED = 1
    """The work was started and failed (cluster, engine, job)."""
    WRONG_INPUT = 2
    """The input is wrong; nothing was started."""
    HOST = 3
    """The host lacks something; nothing was started."""
    JOB_FAILED = 4
    INTERRUPTED = 130


@dataclass(frozen=True)
class Problem:
    """A problem in the four parts that a reader needs to solve it."""

    path: str
    """Location of the problem: `pools[1].accelerator.count`, a file, a flag, a program."""
    got: str
    """Value that was found at `path`."""
    allowed: str
    """Values that are allowed at `path`."""
    fix: str
    """Next step for the user."""
    location: str = ""
    """Position in the file, `file:line:column`, where known."""

    def __str__(self) -> str:
        where = f"{self.path} ({self.location})" if self.location else self.path
        lines = [where, f"  got:     {self.got}", f"  allowed: {self.allowed}", f"  fix:     {self.fix}"]
        return "\n".join(lines)


_FORM = re.compile(
    r"^(\S[^\n]*)\n  got:     (.*?)\n  allowed: (.*?)\n  fix:     (.*?)(?:\n(?=\S)|\s*\Z)",
    re.MULTILINE | re.DOTALL,
)


def problems_in(text: str) -> list[Problem]:
    """Return the problems of a text that consists of problems alone, such as a program's last message."""
    return [] if _FORM.sub("", text) else [Problem(*found.groups()) for found in _FORM.finditer(text)]


class TrainyardError(Exception):
    """Problems that were collected and are shown together."""

    def __init__(self, problems: Sequence[Problem], exit_code: ExitCode = ExitCode.FAILED) -> None:
        self.problems = tuple(problems)
        self.exit_code = exit_code
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle would call the class with `args`, and subclasses take other arguments.
        return type(self).__new__, (type(self), *self.args), self.__dict__


class InterruptedByUser(TrainyardError):  # noqa: N818 -- it is no error
    """Ctrl-C, with the present state and how to continue."""

    def __init__(self, text: str) -> None:
        super().__init__([], ExitCode.INTERRUPTED)
        self.text = text


class InputError(TrainyardError):
    """The user's input is wrong; nothing was started."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(problems, ExitCode.WRONG_INPUT)


class HostError(TrainyardError):
    """The host lacks something; nothing was started."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(problems, ExitCode.HOST)


def nearest(got: str, known: Iterable[str]) -> str:
    """Return the most similar of the known names; empty where none is similar."""
    from difflib import get_close_matches  # needed only if a name is wrong

    return next(iter(get_close_matches(got, list(known), n=1, cutoff=0.6)), "")


def did_you_mean(got: str, known: Iterable[str], otherwise: str) -> str:
    """Return the fix for an unknown name: the most similar known one, or else `otherwise`."""
    near = nearest(got, known)
    return f"did you mean {near!r}?" if near else otherwise
