"""Formats the report of a rehearsal as a table, Markdown or JSON data."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape

from engine.tables import PlainTable
from infra.errors import TrainyardError
from rehearsal.rehearse import Phase, Rehearsal

FIGURE = "fake providers: no cost, no machines, and times that are not a cloud's"


@dataclass(frozen=True)
class RehearsalReport:
    """Result of a rehearsal."""

    stack: str
    rehearsal: Rehearsal

    @property
    def types(self) -> Mapping[str, int]:
        """Number of resources by package: `aws`, `kubernetes`."""
        return Counter(
            urn.split("::")[2].rpartition("$")[2].partition(":")[0] for urn in self.rehearsal.created
        )

    @property
    def unproven(self) -> list[str]:
        """Properties that this rehearsal could not prove, one sentence each."""
        text = [f"{what}: {', '.join(types)}" for what, types in self.rehearsal.unproven.items()]
        return [*text, "quotas, capacity and permissions of the real account; that nodes boot and join"]

    @property
    def seconds(self) -> float:
        """Time of all phases."""
        return sum(phase.seconds for phase in self.rehearsal.phases)

    def data(self) -> dict[str, Any]:
        """Return it as plain data."""
        done = self.rehearsal
        return {
            "stack": self.stack,
            "phases": [
                {
                    "name": phase.name,
                    "changes": dict(phase.changes),
                    "seconds": round(phase.seconds, 1),
                    "pools": list(phase.notes),
                }
                for phase in done.phases
            ],
            "seconds": round(self.seconds, 1),
            "resources": dict(self.types),
            "order": [label(urn) for urn in done.created],
            "keptAfterDestroy": [label(urn) for urn in done.retained],
            "faults": list(done.happened),
            "refused": [
                {"name": each.name, "said": each.message, "fix": each.fix, "source": each.source}
                for each in done.refused
            ],
            "survived": list(done.survived),
            "notProven": self.unproven,
        }

    def show(self, console: Console) -> None:
        """Print it."""
        table = PlainTable("phase", "seconds", "resources")
        for phase in self.rehearsal.phases:
            table.add_row(phase.name, f"{phase.seconds:.1f}", changes(phase))
            for note in phase.notes:
                table.add_row("", "", escape(note))
        table.add_row("all", f"{self.seconds:.1f}", _counted(self.types))
        table.show(console)
        for fault in self.rehearsal.happened:
            console.print(
                f"[yellow]fault[/]    {fault}; the next `up` repaired it", highlight=False, soft_wrap=True
            )
        for each in self.rehearsal.refused:
            text = f"{each.name}: {each.message}\n  fix: {each.fix}\n  known from: {each.source}"
            console.print(f"[yellow]refused[/]  {escape(text)}", highlight=False, soft_wrap=True)
        for name in self.rehearsal.survived:
            reason = "the stack requests nothing that this refusal affects"
            console.print(f"[green]survived[/] {escape(name)}: {reason}")
        if self.rehearsal.retained:
            retained = ", ".join(label(urn) for urn in self.rehearsal.retained)
            console.print(f"[dim]retained after destroy[/]  {retained}", highlight=False, soft_wrap=True)
        console.print(
            "[green]Proven[/]: input types, order and policies; a second `up` changes nothing, and `destroy`"
            " leaves only what is retained.",
            highlight=False,
        )
        for sentence in self.unproven:
            console.print(f"[yellow]Not proven[/]: {sentence}", highlight=False, soft_wrap=True)

    def markdown(self) -> str:
        """Return it as a part of a comment on a pull request."""
        done = self.rehearsal
        rows = [f"| {phase.name} | {changes(phase)} | {phase.seconds:.1f} |" for phase in done.phases]
        lines = [
            f"### Rehearsal of `{self.stack}`: passed",
            "",
            "| phase | resources | seconds |",
            "|---|---|---|",
            *rows,
            "",
            f"{_counted(self.types)}. {FIGURE[0].upper()}{FIGURE[1:]}.",
            "",
            _details(
                "Changes of pools", [f"{phase.name}: {note}" for phase in done.phases for note in phase.notes]
            ),
            _details("Refused", [f"{each.name}: {each.message} **{each.fix}**" for each in done.refused]),
            _details("Survived", list(done.survived)),
            _details("Retained after destroy", [label(urn) for urn in done.retained]),
            _details("Not proven here", self.unproven),
        ]
        return "\n".join(line for line in lines if line is not None) + "\n"


def failure(stack: str, error: TrainyardError) -> str:
    """Return in Markdown why a rehearsal failed: every problem, as the terminal shows it."""
    number = len(error.problems)
    text = "\n\n".join(str(problem) for problem in error.problems)
    head = f"### Rehearsal of `{stack}`: failed ({number} problem{'s' if number > 1 else ''})"
    fence = "~" * 8  # longer than any that a problem may quote
    return f"{head}\n\n{fence}\n{text}\n{fence}\n\n"


def label(urn: str) -> str:
    """A URN's type and name: `aws:ec2/vpc:Vpc training`."""
    parts = urn.split("::")
    return f"{parts[2].rpartition('$')[2]} {parts[3]}"


def changes(phase: Phase) -> str:
    """Return a phase's changes: `264 create`."""
    return ", ".join(f"{number} {change}" for change, number in phase.changes.items() if number) or "nothing"


def _counted(types: Mapping[str, int]) -> str:
    text = ", ".join(f"{number} of {package}" for package, number in sorted(types.items()))
    return f"{sum(types.values())} resources ({text})"


def _details(title: str, items: Sequence[str]) -> str:
    if not items:
        return ""
    listed = "\n".join(f"- {item}" for item in items)
    return f"<details><summary>{title} ({len(items)})</summary>\n\n{listed}\n\n</details>\n"
