"""The report of a preview for a comment, what of a plan was not approved, and annotations.

`PYTHONPATH=TRAINYARD python report.py COMMAND …`, see `main`.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from engine.events import steps_in
from infra.errors import ExitCode, TrainyardError
from trainyard.stack.plan import SIGNS, WORDS, Operation, check_approved, operations, read_plan, write_plan

MAX_CHARACTERS = 32_000
"""Of a report: a comment on GitHub has at most 65,536 characters, and holds two reports and their marker."""
_FENCE = "~~~~~~~~"
_FIRST = ("delete", "create-replacement")


def report(title: str, planned: Sequence[Operation], text: str, link: str) -> str:
    """Return a preview as Markdown: deletions and replacements, counts, messages, then the rest."""
    first = [str(each) for each in planned if each.op in _FIRST]
    rest = [str(each) for each in planned if each.op not in _FIRST]
    number = Counter(each.op for each in planned)
    counts = ", ".join(f"{number[op]} to {WORDS.get(op, op)}" for op in SIGNS if number[op]) or "no change"
    lines = [*first, *([""] if first else []), *_messages(text), *rest]
    head = [f"### {title}", "", f"**{counts}**", ""]
    return shortened([*head, _FENCE, *lines, _FENCE, ""], link)


def shortened(lines: Sequence[str], link: str, most: int = MAX_CHARACTERS) -> str:
    """Return the lines, or as many first ones as fit, with the number and the address of the others."""
    text = "\n".join(lines)
    if len(text) <= most:
        return f"{text}\n"
    kept, length = [], 300  # of the note below
    for line in lines:
        length += len(line) + 1
        if length > most:
            break
        kept.append(line)
    close = [_FENCE] if sum(line.startswith(_FENCE) for line in kept) % 2 else []
    note = f"**{len(lines) - len(kept)} lines omitted**; all of them: {link}"
    return "\n".join([*kept, *close, "", note, ""])


def _messages(text: str) -> Iterator[str]:
    """Yield what the engine prints after its resources: messages of policies, errors, warnings."""
    found = False
    for line in text.splitlines():
        found = found or line.startswith(("Policies:", "Diagnostics:", "error:"))
        if found and not line.startswith("Resources:"):
            yield line


def _annotations(sarif: Path, stack_file: str) -> Iterator[str]:
    """Yield a line for each violation (GitHub, "Workflow commands", setting an error message)."""
    runs = json.loads(sarif.read_text())["runs"] if sarif.exists() else []
    for each in (result for run in runs for result in run["results"] if result.get("level") == "error"):
        message = each["message"]["text"].replace("%", "%25").replace("\n", "%0A")
        yield f"::error file={stack_file},title={each['ruleId']}::{message}\n"


def main(words: Sequence[str]) -> int:
    """Run one of the commands of a pipeline; STACK is the stack, LINK the address of the whole text.

    `whole WHAT EVENTS TEXT PLAN CODE`: write the plan of a preview, from the engine's `--event-log`, its
    output and its exit code, and print the report. `compare APPROVED EVENTS`: refuse what was not approved.
    `annotate SARIF STACK_FILE`: print GitHub's annotations. `shorten`: pass on a text for a comment.
    """
    link = os.environ.get("LINK") or "the job's log"
    match words:
        case ["whole", what, events, text, plan, code]:
            planned = operations(steps_in(Path(events)))
            write_plan(Path(plan), planned)
            title = f"{what} of `{os.environ['STACK']}`: {'passed' if code == '0' else 'failed'}"
            sys.stdout.write(report(title, planned, Path(text).read_text(), link))
        case ["compare", approved, events]:
            try:
                check_approved(read_plan(Path(approved)), operations(steps_in(Path(events))))
            except TrainyardError as error:
                print(*error.problems, sep="\n", file=sys.stderr)
                return ExitCode.WRONG_INPUT
        case ["annotate", sarif, stack_file]:
            print(*_annotations(Path(sarif), stack_file), sep="", end="", file=sys.stderr)
        case _:
            sys.stdout.write(shortened(sys.stdin.read().splitlines(), link))
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
