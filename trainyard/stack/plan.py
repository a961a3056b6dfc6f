"""The operations of a preview: what a reviewer reads, and what a later `up` may do and nothing else."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from engine.events import EngineStep, label
from infra.errors import InputError, Problem, TrainyardError

SIGNS = {"delete": "-", "create-replacement": "±", "update": "~", "create": "+", "import": "="}
WORDS = {"create-replacement": "replace"}


@dataclass(frozen=True)
class Operation:
    """What a plan does to one resource."""

    urn: str
    op: str
    paths: tuple[str, ...] = ()
    """Paths of the inputs that an update or a replacement changes."""

    def __str__(self) -> str:
        changed = f"  [{', '.join(self.paths)}]" if self.paths else ""
        return f"{SIGNS[self.op]} {label(self.urn)} {WORDS.get(self.op, self.op)}{changed}"


def operations(steps: Iterable[EngineStep]) -> list[Operation]:
    """Return what the engine's steps do, in their order."""
    return [Operation(step.urn, step.op, step.paths) for step in steps]


def write_plan(file: Path, planned: Sequence[Operation]) -> None:
    """Write a plan for the reviewers and for `up --plan`."""
    file.write_text(json.dumps([asdict(each) for each in planned], indent=0))


def read_plan(file: Path) -> list[Operation]:
    """Read a plan that `write_plan` wrote. Raises InputError for another file."""
    try:
        return [
            Operation(each["urn"], each["op"], tuple(each["paths"])) for each in json.loads(file.read_text())
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        allowed, fix = "a file that `preview --plan FILE` wrote", "write one, and let it be approved"
        raise InputError([Problem(f"--plan {file}", str(error)[:200], allowed, fix)]) from None


def check_approved(approved: Sequence[Operation], present: Iterable[Operation]) -> None:
    """Raise TrainyardError with each operation that was not approved; fewer operations are allowed."""
    allowed = {(each.urn, each.op): set(each.paths) for each in approved}
    shown = {each.urn: str(each) for each in approved}
    others = [
        each
        for each in present
        if not allowed.keys() & {(each.urn, each.op)} or set(each.paths) - allowed[each.urn, each.op]
    ]
    fix = "nothing was changed: make the plan again, and let it be approved"
    problems = [
        Problem(label(each.urn), str(each), shown.get(each.urn, "no change: the plan has none"), fix)
        for each in others
    ]
    if problems:
        raise TrainyardError(problems)
