"""`trainyard rehearse`: any stack's whole life on the real engine, with nothing real behind it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rich.table import Table

from local.engine import Engine, Result
from local.progress import Progress
from rehearsal.rehearse import Phase, rehearse
from trainyard.session import Session
from trainyard.up import ENGINE_PARTS


@dataclass(frozen=True)
class _Operations:
    """The engine on one stack, with the policies on."""

    engine: Engine
    stack: str
    progress: Progress
    packs: tuple[Path, ...]

    def preview(self) -> Result:
        return self.engine.preview(self.stack, self.progress, policy_packs=self.packs)

    def up(self) -> Result:
        return self.engine.up(self.stack, self.progress, policy_packs=self.packs)

    def refresh(self) -> Result:
        return self.engine.refresh(self.stack, self.progress)

    def destroy(self) -> Result:
        return self.engine.destroy(self.stack, self.progress)


def run_rehearsal(session: Session) -> None:
    """Rehearse the stack in a state folder of its own, and print how each phase went."""
    session.stack  # noqa: B018 -- wrong input ends here
    session.toolchain.ensure(*ENGINE_PARTS)
    with tempfile.TemporaryDirectory(prefix="trainyard-rehearsal-") as folder:
        apart = Session(session.stack_name, replace(session.paths, state=Path(folder)), session.console)

        def open_engine(attached: Mapping[str, str]) -> _Operations:
            engine = Engine(apart.paths, {**apart.toolchain.environment(), **attached})
            return _Operations(engine, session.stack_name, session.progress, (session.paths.policies,))

        done = rehearse(open_engine, lambda phase: session.progress.said(f"✓ {_told(phase)}"))
    table = Table("phase", "resources", "seconds", box=None, pad_edge=False, header_style="dim")
    for phase in done.phases:
        table.add_row(phase.name, _changes(phase), f"{phase.seconds:.1f}")
    session.console.print(table)
    session.console.print(
        f"{len(done.created)} resources would be made. Proven: the program, its order, the policies, and that"
        " it settles and leaves nothing. Not proven: that the providers would take every value.",
        highlight=False,
    )


def _told(phase: Phase) -> str:
    return f"{phase.name}: {_changes(phase)} ({phase.seconds:.1f} s)"


def _changes(phase: Phase) -> str:
    return ", ".join(f"{number} {change}" for change, number in phase.changes.items() if number)
