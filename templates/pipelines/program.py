"""Writes the Pulumi program that a deploy pipeline runs, if a project's Pulumi.yaml has the unchanged program
of a template.

`python program.py PROJECT TRAINYARD TO STACK_FILE` reads PROJECT/Pulumi.yaml, which a pull request may have
changed, and writes TO/Pulumi.yaml with the provider plugin of the clone TRAINYARD. If the project has another
program, configuration or package version, nothing is written and the exit code is 2: a changed program would
run with the cloud's credentials. So it is if the stack file still has a template's examples, except on fakes.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from infra.stackfile.source import FLEET_KEY, STACK_KEY, holds, read

WRONG_INPUT = 2
NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
"""Name of a project (Pulumi, "Project file")."""
PROGRAM = ("runtime", "resources", "outputs")
"""Keys whose values must be those of one template."""
IGNORED = ("name", "description", "stackConfigDir", "packages", "template")
"""Further keys that are allowed; none decides what runs."""
EXAMPLE = re.compile(
    r"\b123456789012\b|@sha256:0{64}|\bexample\.(com|net|org)\b|^example-?[a-z]+$"
    r"|^0{8}-0{4}-0{4}-0{4}-0{11}\d$|\b(192\.0\.2|198\.51\.100|203\.0\.113)\.\d+"
)
"""Values that nobody has: accounts and digests of examples, names of RFC 2606, addresses of RFC 5737."""


def main(project: Path, trainyard: Path, to: Path, stack_file: Path) -> int:
    """Write the program; return the exit code."""
    written = yaml.safe_load((project / "Pulumi.yaml").read_text(encoding="utf-8")) or {}
    templates = [
        yaml.safe_load(file.read_text(encoding="utf-8")) for file in trainyard.glob("templates/*/Pulumi.yaml")
    ]
    version = json.loads((trainyard / "engine/provider/pulumi-plugin.json").read_text())["version"]
    problems = list(problems_of(written, templates, version))
    if "PULUMI_DEBUG_PROVIDERS" not in os.environ:
        problems += examples_in(stack_file)
    if problems:
        print("\n".join(problems), file=sys.stderr)
        return WRONG_INPUT
    plugin = {"name": "trainyard", "path": str(trainyard / ".trainyard/bin")}
    program = {key: written[key] for key in ("name", *PROGRAM)}
    program |= {"stackConfigDir": "stacks", "plugins": {"providers": [plugin]}}
    (to / "Pulumi.yaml").write_text(yaml.safe_dump(program, sort_keys=False), encoding="utf-8")
    return 0


def problems_of(written: dict[str, Any], templates: list[dict[str, Any]], version: str) -> Iterator[str]:
    """Report what differs from every template, besides the name; nothing in the file is executed."""
    if not NAME.fullmatch(str(written.get("name"))):
        yield _problem("name", written.get("name"), "letters, digits, `.`, `_`, `-`", "rename the project")
    program = {key: written.get(key) for key in PROGRAM}
    if program not in [{key: each.get(key) for key in PROGRAM} for each in templates]:
        allowed = "those of one of templates/*/Pulumi.yaml in the pipeline's copy of Trainyard"
        fix = "copy them from there; put your own resources into a separate project, or into a template there"
        yield _problem(", ".join(PROGRAM), "values of no template", allowed, fix)
    if set(written.get("config") or {}) - {"pulumi:tags"}:  # which `pulumi new` writes
        yield _problem("config", written["config"], "none", "write it into a stack file")
    for key in sorted(set(written) - {*PROGRAM, *IGNORED, "config"}):
        yield _problem(key, written[key], f"one of {', '.join((*IGNORED, *PROGRAM))}", "remove it")
    named = str((written.get("packages") or {}).get("trainyard", "")).rpartition("@")[2]
    if named != version:
        fix = f"use @{version}, or write the pipeline for the commit of v{named} of your copy"
        yield _problem("packages.trainyard", f"version {named}", f"{version}, the pipeline's own", fix)


def examples_in(stack_file: Path) -> Iterator[str]:
    """Report each value of a template that was not replaced, with its line."""
    data, source = read(stack_file, FLEET_KEY if holds(stack_file, FLEET_KEY) else STACK_KEY)
    for path, value in _leaves(data, ()):
        if EXAMPLE.search(str(value)):
            where = f"{source.location(path)}: {source.show(path)}"
            yield _problem("", value, "a value of yours", "replace it: nothing has this name", where)


def _leaves(data: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:  # noqa: ANN401
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else None
    if items is None:
        yield path, data
    for key, value in items or ():
        yield from _leaves(value, (*path, key))


def _problem(key: str, got: object, allowed: str, fix: str, where: str = "") -> str:
    place = where or f"Pulumi.yaml: {key}"
    return f"{place}\n  got:     {str(got)[:200]!r}\n  allowed: {allowed}\n  fix:     {fix}"


if __name__ == "__main__":
    sys.exit(main(*(Path(word).absolute() for word in sys.argv[1:])))
