"""Wrong stacks, fleets and jobs: each is a patch of a valid one of its target, with the expected problems.

A file of `tests/cases/wrong` has a target's valid ones under `good`, and under `wrong` the cases by name:
`of`, the valid one (by default the first), `set`, the patch (`tests/patches.py`), and `problems`, a paragraph
of `path: got; allowed; fix` for each. A valid one may itself be a patch of another. It may have a `job` for
the stack: a case that changes this is a job file, which meets that stack. `python -m
tests.infra.stackfile.wrong` rewrites the problems, to be reviewed. Where line and column matter, a case is
a whole file in `tests/cases/wrong/whole`, with its message beside it, and its job file if that is wrong.
"""

import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from infra.errors import InputError
from infra.stackfile import load, load_fleet, load_job
from infra.stackfile.source import FLEET_KEY, STACK_KEY, holds, read_whole
from tests.infra.golden import CASES
from tests.patches import changed

FOLDER = CASES / "wrong"
STACKS = ("aws", "azure", "coreweave", "gcp", "local", "onprem")
JOB = ".job.yaml"
WHOLE = sorted(file for file in (FOLDER / "whole").rglob("*.yaml") if not file.name.endswith(JOB))
"""Stack files, some with a job file beside them, and in `fleets` fleet files."""
HEADER = "# Each of `wrong` breaks one of `good`: tests/infra/stackfile/wrong.py says how to edit it."
WIDTH = 110


@dataclass(frozen=True)
class WrongFile:
    """A case: the content of the file, and the expected problems."""

    name: str
    config: Mapping[str, Any]
    problems: tuple[str, ...]
    job: Mapping[str, Any] | None = None
    """Content of the job file, if that is what is wrong."""

    def __str__(self) -> str:
        return self.name

    def write(self, folder: Path) -> Path:
        """Write the case as a stack file, and its job file beside it; return the one that is wrong."""
        file = folder / "Pulumi.wrong.yaml"
        file.write_text(_yaml({"config": dict(self.config)}))
        if self.job is None:
            return file
        _job_file(file).write_text(_yaml(dict(self.job)))
        return _job_file(file)


def read_file(file: Path) -> object:
    """Read a stack, a fleet, or a job file with the stack beside it, as the command line does."""
    if file.name.endswith(JOB):
        return load_job(file, stack=load(file.with_name(file.name.removesuffix(JOB) + ".yaml")))
    return load_fleet(file) if holds(file, FLEET_KEY) else load(file)


def wrong_part(file: Path) -> Path:
    """Return the job file beside a stack file, which is sound then; else the file itself."""
    return _job_file(file) if _job_file(file).exists() else file


def _job_file(file: Path) -> Path:
    return file.with_name(file.stem + JOB)


def _yaml(data: object) -> str:
    return str(yaml.dump(data, Dumper=yaml.CSafeDumper, sort_keys=False))


def read(target: str) -> Mapping[str, Any]:
    """Return `good` and `wrong` of a target's file. ValueError for a name that it has twice."""
    data, source = read_whole(FOLDER / f"{target}.yaml")
    if source.problems:
        raise ValueError("\n".join(map(str, source.problems)))
    return dict(data)


def good(target: str, name: str = "") -> dict[str, Any]:
    """Return a valid stack, or fleet, as data; by default the first one of the file."""
    found = read(target)["good"]
    whole = _good(found, name or next(iter(found)))
    return {key: value for key, value in whole.items() if key != "job"}


def good_job(target: str, name: str) -> dict[str, Any] | None:
    """Return the job for a valid stack, if it has one."""
    return _good(read(target)["good"], name).get("job")


def _good(found: Mapping[str, Any], name: str) -> dict[str, Any]:
    one = found[name]
    return changed(_good(found, one["of"]), one["set"]) if "of" in one else dict(one)


def cases(target: str) -> Iterator[WrongFile]:
    """Yield the cases of a target, or of `fleet`."""
    data = read(target)
    first, key = next(iter(data["good"])), FLEET_KEY if target == "fleet" else STACK_KEY
    for name, case in data["wrong"].items():
        whole = changed(_good(data["good"], case.get("of", first)), case["set"])
        job = whole.pop("job", None)
        is_job = any(path.split(".")[0] == "job" for path in case["set"])
        problems = tuple(case.get("problems", "").splitlines())
        yield WrongFile(name, {key: whole}, problems, job if is_job else None)


def lines_of(error: InputError) -> tuple[str, ...]:
    """Return a line for each problem of an error."""
    return tuple(f"{each.path}: {each.got}; {each.allowed}; {each.fix}" for each in error.problems)


def text_of(data: Mapping[str, Any]) -> str:
    """Return the text of a target's file: lines of at most 110 characters."""
    lines = [HEADER, "good:"]
    for name, whole in data["good"].items():
        lines += [f"  {name}:", *(line for key, value in whole.items() for line in _lines(key, value, 4, 1))]
    lines.append("wrong:")
    for name, case in data["wrong"].items():
        lines.append(f"  {name}:")
        lines += [f"    of: {case['of']}"] if "of" in case else []
        lines += _lines("set", case["set"], 4, 1)
        lines.append("    problems: >-")
        lines.append("\n\n".join(_filled(problem, 6, 6) for problem in case["problems"].splitlines()))
    return "\n".join(lines) + "\n"


def _lines(key: str, value: object, indent: int, depth: int) -> Iterator[str]:
    """Yield `key: value`: on one line if it fits, else a line per entry, `depth` levels down."""
    start, flow = f"{' ' * indent}{_flow(key)}:", _flow(value)
    if len(f"{start} {flow}") <= WIDTH:
        yield f"{start} {flow}"
    elif isinstance(value, dict) and depth:
        yield start
        for name, each in value.items():
            yield from _lines(name, each, indent + 2, depth - 1)
    elif isinstance(value, list) and depth:
        yield start
        yield from (_wrapped(f"- {_flow(each)}", indent + 2, indent + 6) for each in value)
    elif isinstance(value, dict | list):
        yield _wrapped(f"{_flow(key)}: {flow}", indent, indent + 4)
    else:
        yield start
        yield _wrapped(flow, indent + 2, indent + 2)


def _flow(value: object) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=100_000, allow_unicode=True)
    return str(text).removesuffix("\n").removesuffix("\n...")


def _filled(text: str, first: int, then: int, *, break_long_words: bool = False) -> str:
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=" " * first,
        subsequent_indent=" " * then,
        break_long_words=break_long_words,
        break_on_hyphens=False,
    )


def _wrapped(text: str, first: int, then: int) -> str:
    """Wrap a text, if possible without a break between a key and its value."""
    together = _filled(text.replace(": ", ":\0"), first, then).replace("\0", " ").splitlines()
    fits = max(map(len, together)) <= WIDTH
    lines = together if fits else _filled(text, first, then).splitlines()
    return "\n".join(line if len(line) <= WIDTH else _broken(line) for line in lines)


def _broken(line: str) -> str:
    """Break a value without spaces that is longer than a line: in double quotes, with backslashes."""
    indent = " " * (len(line) - len(line.lstrip()))
    word = line.strip().rstrip(",]}")
    end = line.strip().removeprefix(word)
    width = WIDTH - len(indent) - len(end) - 2
    parts = textwrap.wrap(word.strip("'"), width, break_on_hyphens=False)
    return f'{indent}"' + f"\\\n{indent}".join(parts) + f'"{end}'


def readable(text: str) -> str:
    """Return a message with its long lines wrapped."""
    return "".join(f"{_filled(line, 0, 11, break_long_words=True)}\n" for line in text.splitlines())


def update(target: str) -> None:
    """Write the current problems of each case into the target's file."""
    data = read(target)
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(target):
            try:
                read_file(case.write(Path(folder)))
            except InputError as error:
                data["wrong"][case.name]["problems"] = "\n".join(lines_of(error))
    (FOLDER / f"{target}.yaml").write_text(text_of(data))


if __name__ == "__main__":
    for each in (*STACKS, "fleet"):
        update(each)
