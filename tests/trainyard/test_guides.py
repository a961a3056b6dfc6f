"""What the guides tell people to type exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer

from infra.artifacts import ROOT
from trainyard.cli import app

GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```(?:sh|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
_COMMAND = re.compile(r"(?:^|[\s(/\"])trainyard ([a-z-]+)([^|&;#)\n]*)")


def typed(guide: Path) -> Iterator[tuple[str, list[str]]]:
    """Commands with their words, of blocks and of code within lines."""
    text = guide.read_text()
    rest = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    for code in (*_BLOCK.findall(text), *_INLINE.findall(rest)):
        for command, words in _COMMAND.findall(code):
            yield command, shlex.split(words.replace("'", "").replace('"', ""))


def commands() -> Mapping[str, Any]:
    group: Any = typer.main.get_command(app)  # of click's, or of a copy that typer brings along
    found: Mapping[str, Any] = group.commands
    return found


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_commands_of_the_guides_exist_with_their_options(guide: Path) -> None:
    known = commands()
    for command, words in typed(guide):
        assert command in known, f"{guide.name}: trainyard {command}"
        if "--" in words:  # what follows is the job's own command
            words = words[: words.index("--")]
        found = known[command]
        while below := getattr(found, "commands", None):
            found = below[words.pop(0)]
        options = {name for each in found.params for name in (*each.opts, *each.secondary_opts)}
        asked = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert asked <= {*options, "--help"}, f"{guide.name}: trainyard {command} {words}"


def test_the_guides_of_targets_name_commands() -> None:
    told = {guide.stem: {command for command, _ in typed(guide)} for guide in GUIDES}
    for target in ("aws", "azure", "coreweave", "gcp", "onprem"):
        assert {"validate", "rehearse", "price", "env"} <= told[target], target
