"""Writes a team's file from the values of a form.

`PYTHONPATH=TRAINYARD python form.py ISSUE_FORM` reads FORM: the text of an issue that GitHub made of
ISSUE_FORM, or the inputs of a workflow as JSON. STACK is the stack. A wrong value ends it with all problems,
and writes nothing.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

from infra.errors import ExitCode, TrainyardError
from trainyard.commands.team.new import new

_EMPTY = "_No response_"
"""What GitHub writes for a field without a value."""


def values_of(form: str, issue_form: Path) -> dict[str, str]:
    """Return key → value; an issue has `### LABEL` before each value, and the form the key of each label."""
    if form.lstrip().startswith("{"):
        found: dict[str, str] = json.loads(form)
        return found
    fields = (each for each in yaml.safe_load(issue_form.read_text())["body"] if "id" in each)
    keys = {each["attributes"]["label"]: each["id"] for each in fields}
    _, *parts = re.split(r"^### (.+)$", form.replace("\r", ""), flags=re.MULTILINE)
    read = {
        keys.get(label.strip(), ""): text.strip() for label, text in zip(parts[::2], parts[1::2], strict=True)
    }
    return {key: "" if text == _EMPTY else text for key, text in read.items() if key}


def write_team(values: Mapping[str, str], stack: str) -> None:
    """Write the file as `trainyard team new` does; several groups are separated by commas."""
    given = {key: values.get(key, "") for key in ("quota", "queue", "expires", "cost_centre")}
    groups = [each.strip() for each in values.get("group", "").split(",")]
    new(values.get("name", ""), values.get("owner", ""), groups, **given, stack=stack)


if __name__ == "__main__":
    try:
        write_team(values_of(os.environ["FORM"], Path(sys.argv[1])), os.environ["STACK"])
    except TrainyardError as error:
        print(*error.problems, sep="\n")
        sys.exit(ExitCode.WRONG_INPUT)
