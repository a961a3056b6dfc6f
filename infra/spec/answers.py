"""Answers to a template's questions: `trainyard:stack.PATH`, beside `trainyard:stack` with its defaults.

`pulumi new` asks for values of the configuration that are text, each by a key of its own, and writes them
into the stack file (Pulumi, "Creating templates", `template.config`). A section's values are thus answered by
keys that begin with the section's; `provider.access.admins[0]` is spelt as problems spell a path.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from typing import Any

KeyPath = tuple[str | int, ...]
Scalar = str | int | float | bool

_FORM = re.compile(r"[^.\[\]]+(\[\d+\])*(\.[^.\[\]]+(\[\d+\])*)*")
_PART = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


def path_of(key: str, section: str) -> KeyPath | None:
    """Return the path that a configuration key answers in a section; None for a key that answers nothing."""
    spelt = key.removeprefix(f"{section}.")
    if spelt == key or not _FORM.fullmatch(spelt):
        return None
    return tuple(int(index) if index else name for index, name in _PART.findall(spelt))


def answers_in(config: Mapping[str, Any], section: str) -> dict[KeyPath, Any]:
    """Return the answers of a configuration, by path."""
    found = ((path_of(key, section), value) for key, value in config.items())
    return {path: value for path, value in found if path is not None}


def answered(data: Any, answers: Mapping[KeyPath, Any]) -> Any:  # noqa: ANN401 -- whatever the user wrote
    """Return a section's data with each answer in place of the value at its path, read as that one's type."""
    made = copy.deepcopy(data) if answers else data
    for path, answer in answers.items():
        if is_answerable(data, path):
            holder = _at(made, path[:-1])
            holder[path[-1]] = _typed(answer, holder[path[-1]])
    return made


def is_answerable(data: Any, path: KeyPath) -> bool:  # noqa: ANN401
    """Whether a section has a single value at this path, which an answer can take the place of."""
    try:
        return isinstance(_at(data, path), Scalar)
    except (KeyError, IndexError, TypeError):
        return False


def given_as_configured(data: Any, config: Mapping[str, str], section: str) -> Any:  # noqa: ANN401 -- JSON
    """Return a component's input with the answers, where it is the configuration's own section as it stands.

    Any other input is the program's: an answer says nothing of it.
    """
    configured = config.get(section)
    if configured is None or json.loads(configured) != data:
        return data
    return answered(data, answers_in(config, section))


def _at(data: Any, path: KeyPath) -> Any:  # noqa: ANN401
    for part in path:
        data = data[part]
    return data


def _typed(answer: Any, default: Scalar) -> Any:  # noqa: ANN401
    """Read a text as no text where it replaces none; what cannot be read the spec refuses."""
    if isinstance(default, str) or not isinstance(answer, str):
        return answer
    try:
        read = json.loads(answer)
    except ValueError:
        return answer
    return read if isinstance(read, Scalar) else answer
