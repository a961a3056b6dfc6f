"""A guide's command blocks, pasted into one shell as a reader pastes them.

A fenced `sh` block runs as it is printed. An HTML comment right above it, which readers do not see, can say
`<!-- not run: REASON -->` if it cannot run here, `<!-- run by: TEST -->` if another test runs it on a running
cluster, and `<!-- stack file: {KEY: VALUE} -->` for an edit of the stack file that the text asks for.
"""

import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_BLOCK = re.compile(r"(?P<notes>(?:^<!--[^\n]*-->\n)*)^```sh\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
_NOTE = re.compile(r"^<!-- (?P<key>not run|run by|stack file): (?P<value>.*) -->$", re.MULTILINE)
_PROMPT = b"Do you want to perform this"
"""Prompt of `pulumi up` and `destroy`; typing filters the answers."""
SECONDS = 1700.0
"""Timeout for all blocks of a guide, on a busy host."""


@dataclass(frozen=True)
class FencedBlock:
    """A fenced `sh` block of a page."""

    page: str
    line: int
    text: str
    reason: str = ""
    """Why the block cannot run here; empty if it runs."""
    test: str = ""
    """File of the test that runs the block on a running cluster; empty if it is pasted."""
    edits: Mapping[str, Any] | None = None
    """Values that are merged into the stack file before."""

    @property
    def is_pasted(self) -> bool:
        """Whether the test of the guides runs it."""
        return not (self.reason or self.test)

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: Path) -> list[FencedBlock]:
    """Return the `sh` blocks of a page in order."""
    return list(_blocks(page.name, page.read_text(encoding="utf-8")))


def _blocks(page: str, text: str) -> Iterator[FencedBlock]:
    for found in _BLOCK.finditer(text):
        notes = {note["key"]: note["value"] for note in _NOTE.finditer(found["notes"])}
        line = text.count("\n", 0, found.start("text")) + 1
        edits = yaml.safe_load(notes["stack file"]) if "stack file" in notes else None
        yield FencedBlock(page, line, found["text"], notes.get("not run", ""), notes.get("run by", ""), edits)


def run_by(test: str, page: Path) -> FencedBlock:
    """Return the block of a page that a test runs."""
    [block] = [each for each in blocks(page) if each.test == Path(test).name]
    return block


@dataclass(frozen=True)
class Transcript:
    """The output of the shell."""

    code: int
    text: str

    def of(self, block: FencedBlock) -> str:
        """Return the output of one block."""
        _, _, after = self.text.partition(f"::{block.name}::")
        return after.partition("\r\n::")[0]


def paste(
    found: list[FencedBlock], folder: Path, environment: Mapping[str, str], stack_file: Path
) -> Transcript:
    """Paste the blocks that run into one shell in `folder`, and answer `yes` where Pulumi asks."""
    script = "".join(_with_edits(block, stack_file) for block in found if block.is_pasted)
    master, slave = pty.openpty()
    shell = subprocess.Popen(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script],
        cwd=folder,
        env=dict(environment),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    try:
        shown = b"".join(_shown(master, shell))
    finally:
        if shell.poll() is None:
            os.killpg(shell.pid, signal.SIGKILL)
        os.close(master)
    return Transcript(shell.wait(), shown.decode(errors="replace"))


def _with_edits(block: FencedBlock, stack_file: Path) -> str:
    command = ""
    if block.edits is not None:
        words = [sys.executable, __file__, "edit", str(stack_file), yaml.safe_dump(block.edits)]
        command = shlex.join(words) + "\n"
    return f"{command}echo; echo ::{block.name}::\n{block.text}\n"


def _shown(master: int, shell: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """Yield the shell's output until it ends; answer each prompt once."""
    deadline, unread = time.monotonic() + SECONDS, b""
    while time.monotonic() < deadline:
        ready, _, _ = select.select([master], [], [], 0.5)
        if ready:
            try:
                chunk = os.read(master, 1 << 16)
            except OSError:  # the last process on the terminal has ended
                return
            yield chunk
            unread += chunk
            if _PROMPT in unread:
                os.write(master, b"yes\r")
                unread = b""
        elif shell.poll() is not None:
            return


def _merge(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {key: _merge(old.get(key), value) for key, value in new.items()}
    return [*old, *new] if isinstance(old, list) and isinstance(new, list) else new


def edit(stack_file: Path, changes: Mapping[str, Any]) -> None:
    """Merge changes into a stack file's configuration, as a reader does in an editor."""
    config = yaml.safe_load(stack_file.read_text())
    config["config"] = _merge(config["config"], changes)
    stack_file.write_text(yaml.safe_dump(config, sort_keys=False))


def count(pages: list[Path]) -> str:
    """Return a report of how many blocks are executed, and why the others are not."""
    found = [block for page in pages for block in blocks(page)]
    left_out = [f"  not run: {block.name}: {block.reason}" for block in found if block.reason]
    return "\n".join(
        [f"blocks of the guides: {len(found)}, {len(found) - len(left_out)} executed", *left_out]
    )


if __name__ == "__main__":
    if sys.argv[1] == "edit":
        edit(Path(sys.argv[2]), yaml.safe_load(sys.argv[3]))
    else:
        sys.stdout.write(count([Path(page) for page in sys.argv[1:]]) + "\n")
