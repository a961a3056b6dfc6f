"""Overrides single values of the stack file with a template's answers, and lists what they replace.

`pulumi new` writes each answer into the stack file under a separate key (Pulumi, "Creating templates",
`template.config`). The key is the section's name and the path of the value, such as
`trainyard:stack.target.access.admins[0]`.
"""

import copy
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

KeyPath = tuple[str | int, ...]
Scalar = str | int | float | bool


@dataclass(frozen=True)
class Override:
    """A value of a section that an answer of another value replaces."""

    section: str
    path: KeyPath
    value: Scalar
    former: Scalar
    at: str = ""
    """Position of the answer, `file:line:column`, where known."""
    former_at: str = ""

    def __str__(self) -> str:
        key = f"{self.section}.{show(self.path)}"
        at, former_at = (f" ({location})" if location else "" for location in (self.at, self.former_at))
        return f"{key} is {self.value!r}{at}, in place of {self.former!r} in {self.section}{former_at}"


_FORM = re.compile(r"[^.\[\]]+(\[\d+\])*(\.[^.\[\]]+(\[\d+\])*)*")
_PART = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


def path_of(key: str, section: str) -> KeyPath | None:
    """Return the path that a configuration key answers in a section; None for a key that answers nothing."""
    spelt = key.removeprefix(f"{section}.")
    if spelt == key or not _FORM.fullmatch(spelt):
        return None
    return tuple(int(index) if index else name for index, name in _PART.findall(spelt))


def show(path: KeyPath) -> str:
    """Spell a path as it is read: `pools[1].accelerator.count`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


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


def overrides(data: Any, answers: Mapping[KeyPath, Any], section: str) -> list[Override]:  # noqa: ANN401
    """Return the values that the answers change; answers equal to the section's values are omitted."""
    answered = {
        path: (_at(data, path), answer) for path, answer in answers.items() if is_answerable(data, path)
    }
    read = [(path, _typed(answer, former), former) for path, (former, answer) in answered.items()]
    return [Override(section, path, value, former) for path, value, former in read if value != former]


def is_answerable(data: Any, path: KeyPath) -> bool:  # noqa: ANN401
    """Whether a section has a single value at this path, which an answer can replace."""
    try:
        return isinstance(_at(data, path), Scalar)
    except (KeyError, IndexError, TypeError):
        return False


def answers_to(data: Any, config: Mapping[str, str], section: str) -> dict[KeyPath, str]:  # noqa: ANN401 -- JSON
    """Return the answers to a component's input, if the input is the configuration's own section, unchanged.

    Any other input is the program's own: answers do not apply to it.
    """
    configured = config.get(section)
    if configured is None or json.loads(configured) != data:
        return {}
    return answers_in(config, section)


def without_secrets(config: Mapping[str, str], secret: Collection[str]) -> dict[str, str]:
    """Return a configuration that may be shown."""
    return {key: "[secret]" if key in secret else value for key, value in config.items()}


def _at(data: Any, path: KeyPath) -> Any:  # noqa: ANN401
    for part in path:
        if isinstance(data, str):
            raise TypeError(f"a text has no {part}")
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
