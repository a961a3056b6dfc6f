"""The commands, options and files that the guides name exist."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer

from infra.common.artifacts import ROOT
from trainyard.cli import COMMANDS, GROUPS, app_of

GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(?:sh|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
_COMMAND = re.compile(r"(?:^|[\s(/\"])trainyard ([a-z-]+)([^|&;#)\n]*)")


def typed(guide: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the commands of a guide and their arguments, from code blocks and inline code."""
    text = guide.read_text()
    rest = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    for code in (*_BLOCK.findall(text), *_INLINE.findall(rest)):
        for command, arguments in _COMMAND.findall(code):
            yield command, shlex.split(arguments.replace("'", "").replace('"', ""))


def commands() -> Mapping[str, Any]:
    group: Any = typer.main.get_command(app_of())  # of click's, or of a copy that typer brings along
    found: Mapping[str, Any] = group.commands
    return found


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_commands_of_the_guides_exist_with_their_options(guide: Path) -> None:
    known = commands()
    for command, arguments in typed(guide):
        assert command in known, f"{guide.name}: trainyard {command}"
        if "--" in arguments:  # the job's command follows
            arguments = arguments[: arguments.index("--")]
        found = known[command]
        while arguments and (below := getattr(found, "commands", None)):
            found = below[arguments.pop(0)]
        options = {name for each in found.params for name in (*each.opts, *each.secondary_opts)}
        asked = {word.partition("=")[0] for word in arguments if re.match(r"--?[a-z]", word)}
        assert asked <= {*options, "--help"}, f"{guide.name}: trainyard {command} {arguments}"


BELOW = [each for _, members in GROUPS.values() for each in members if each not in (*COMMANDS, "import")]
_WITHOUT = re.compile(rf"\btrainyard[\"'(,]*[ \"'(][\"']?({'|'.join(BELOW)})\b(?![./:-])")


def test_no_file_names_a_command_without_its_group() -> None:
    ways = ("`trainyard {} -s aws`", 'stack.trainyard("{}")', '["bin/trainyard", "{}"]')
    assert all(_WITHOUT.search(way.format(name)) for way in ways for name in BELOW)
    tracked = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")
    texts = {name: (ROOT / name).read_bytes() for name in {*tracked} - {""} if (ROOT / name).is_file()}
    found = {name: _WITHOUT.search(text.decode(errors="replace")) for name, text in texts.items()}
    assert {name: match[0] for name, match in found.items() if match} == {}


ELSEWHERE = {
    "stacks/Pulumi.dev.yaml": "a project's own",
    "stacks/teams": "a project's own",
    "examples/gke-a4x": "a folder of another repository",
}
_PATH = re.compile(r"[\w./<>*{},-]+")


def named(guide: Path) -> Iterator[str]:
    """Yield the paths of this repository in inline code."""
    top = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}
    for code in _INLINE.findall(guide.read_text()):
        if _PATH.fullmatch(code) and "/" in code and code.partition("/")[0] in top:
            yield code


def alternatives(path: str) -> list[str]:
    """Expand `a.{b,c}`, and replace `<kind>` by a wildcard."""
    path = re.sub(r"<[^>]+>", "*", path)
    if not (group := re.search(r"\{([^{}]*)\}", path)):
        return [path]
    before, after = path[: group.start()], path[group.end() :]
    return [each for part in group[1].split(",") for each in alternatives(before + part + after)]


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_files_that_a_guide_names_exist(guide: Path) -> None:
    paths = {each for path in named(guide) if path not in ELSEWHERE for each in alternatives(path)}
    assert [path for path in sorted(paths) if not any(ROOT.glob(path.rstrip("/")))] == []
