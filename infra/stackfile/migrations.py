"""Migrates stack and fleet files of an older `schema:` version; comments and formatting are retained.

A release that renames or moves a key of the spec raises `LATEST` and adds the move to `STEPS`, so that
`trainyard migrate` can apply it to every user's files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import yaml

from infra.errors import InputError, Problem
from infra.stackfile.source import FLEET_KEY, STACK_KEY, show

LATEST = 1
Keys = tuple[str, ...]


@dataclass(frozen=True)
class Move:
    """A scalar that moves to another path in some version."""

    old: Keys
    new: Keys
    """New path of the scalar; its mapping exists in every valid file."""


STEPS: Mapping[int, tuple[Move, ...]] = {
    # Before the first release, backups were a field of FSx for Lustre alone.
    0: (Move(("provider", "filesystem", "backup_days"), ("storage", "checkpoints", "snapshot_days")),),
}
"""Version → changes from that version to the next."""


def migrate(text: str, since: int | None = None) -> str:
    """Return the text of a stack file or of a fleet's in the latest version.

    Args:
        text: The whole file. One without `schema:` is of version 0.
        since: The version that it is of, where the file is mistaken about that.

    Raises:
        InputError: no stack and no fleet is in it, it is newer than this program, or a key that moves
            exists at the new path too.
    """
    found = _version(_whole(text)) if since is None else since
    if not 0 <= found <= LATEST:
        fix = "use the release that wrote it" if found > LATEST else "set the version with --since"
        raise InputError([Problem("schema", str(found), f"0 to {LATEST}", fix)])
    for version in range(found, LATEST):
        for move in STEPS[version]:
            text = _moved(text, move)
        text = _set_version(text, version + 1)
    return text


def _moved(text: str, move: Move) -> str:
    whole = _whole(text)
    pair = _pair(whole, move.old)
    if pair is None:
        return text
    if _pair(whole, move.new) is not None:
        path, fix = show(move.new), f"remove it, or {show(move.old)}"
        raise InputError([Problem(path, f"a value, as has {show(move.old)}", "one of the two", fix)])
    value, comment = _text(text, pair[1]), _comment_behind(text, whole, move.old)
    return _inserted(_removed(text, whole, move.old), move.new, value, comment)


def _comment_behind(text: str, whole: yaml.MappingNode, keys: Keys) -> str:
    """Return the comment behind a scalar that has a line to itself; empty if there is none."""
    parent, pair = _mapping(whole, keys[:-1]), _pair(whole, keys)
    assert parent is not None and pair is not None
    end = pair[1].end_mark.index
    return "" if parent.flow_style else text[end : _line_end(text, end)].strip()


def _removed(text: str, whole: yaml.MappingNode, keys: Keys) -> str:
    """Remove a key and its scalar; the whole line, if it holds nothing else."""
    parent, pair = _mapping(whole, keys[:-1]), _pair(whole, keys)
    assert parent is not None and pair is not None
    start, end = pair[0].start_mark.index, pair[1].end_mark.index
    if not parent.flow_style:
        return text[: text.rindex("\n", 0, start) + 1] + text[_line_end(text, end) :]
    after = text[end:]
    if after.lstrip().startswith(","):
        rest = after.lstrip()[1:].lstrip(" ")
        return text[:start] + rest
    return text[:start].rstrip().removesuffix(",") + after


def _inserted(text: str, keys: Keys, value: str, comment: str) -> str:
    """Put a key, and a comment, behind the last key of its mapping.

    Raises InputError where the mapping does not exist.
    """
    parent = _mapping(_whole(text), keys[:-1])
    if parent is None or not parent.value:
        path, fix = show(keys[:-1]), f"write it, with {keys[-1]}: {value}"
        raise InputError([Problem(path, "nothing", "a mapping", fix)])
    first, last = parent.value[0][0], parent.value[-1][1]
    if parent.flow_style:
        end, line = last.end_mark.index, text.rfind("\n", 0, first.start_mark.index) + 1
        indent = text[line : line + len(text[line:]) - len(text[line:].lstrip(" "))]
        above = f"{indent}{comment}\n" if comment else ""  # nothing may follow a comment inside the braces
        return f"{text[:line]}{above}{text[line:end]}, {keys[-1]}: {value}{text[end:]}"
    end, behind = _line_end(text, _end(last)), f"  {comment}" if comment else ""
    return f"{text[:end]}{' ' * first.start_mark.column}{keys[-1]}: {value}{behind}\n{text[end:]}"


def _set_version(text: str, version: int) -> str:
    whole = _whole(text)
    pair = _pair(whole, ("schema",))
    if pair is not None:
        start, end = pair[1].start_mark.index, pair[1].end_mark.index
        return f"{text[:start]}{version}{text[end:]}"
    first = whole.value[0][0].start_mark
    return f"{text[: first.index]}schema: {version}\n{' ' * first.column}{text[first.index :]}"


def _version(whole: yaml.MappingNode) -> int:
    pair = _pair(whole, ("schema",))
    if pair is None:
        return 0
    if not pair[1].value.isdigit():
        raise InputError([Problem("schema", pair[1].value, f"0 to {LATEST}", "write a number")])
    return int(pair[1].value)


def _whole(text: str) -> yaml.MappingNode:
    """Return the node of the stack or of the fleet."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    for key in (STACK_KEY, FLEET_KEY):
        found = _mapping(root, ("config", key)) if isinstance(root, yaml.MappingNode) else None
        if found is not None and found.value:
            return found
    allowed, fix = f"{STACK_KEY} or {FLEET_KEY}", "name a stack file"
    raise InputError([Problem("config", "neither", allowed, fix)])


def _mapping(node: yaml.MappingNode, keys: Keys) -> yaml.MappingNode | None:
    found: yaml.Node | None = node
    for key in keys:
        found = dict(_items(found)).get(key)
    return found if isinstance(found, yaml.MappingNode) else None


def _pair(node: yaml.MappingNode, keys: Keys) -> tuple[yaml.Node, yaml.ScalarNode] | None:
    parent = _mapping(node, keys[:-1])
    for key, value in parent.value if parent else ():
        if key.value == keys[-1] and isinstance(value, yaml.ScalarNode):
            return key, value
    return None


def _items(node: yaml.Node | None) -> Iterator[tuple[str, yaml.Node]]:
    if isinstance(node, yaml.MappingNode):
        yield from ((str(key.value), value) for key, value in node.value)


def _text(text: str, node: yaml.Node) -> str:
    return text[node.start_mark.index : node.end_mark.index]


def _end(node: yaml.Node) -> int:
    """Return where a value ends; the mark of a block is behind the blank lines and comments after it."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(node, yaml.MappingNode) else last)
    return node.end_mark.index


def _line_end(text: str, index: int) -> int:
    """Return where the next line begins; of a last line without an end, the end of the text."""
    found = text.find("\n", index)
    return len(text) if found < 0 else found + 1
