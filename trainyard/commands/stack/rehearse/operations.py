"""`EngineOperations`: runs the engine's operations on a rehearsed stack, changes its stack file, and kills
the engine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from engine.engine import Engine
from engine.events import OperationResult
from engine.progress import Progress
from infra.stackfile.defaults import completed
from infra.stackfile.source import STACK_KEY, read
from rehearsal.fake import Fake
from rehearsal.leaks import Leak
from trainyard.commands.stack.rehearse.project import RehearsalProject, leaks_left
from trainyard.stack.pool_changes import pool_changes


@dataclass(frozen=True)
class OperationOutcome:
    """Result of an operation, and its changes to the pools."""

    changes: Mapping[str, int]
    seconds: float
    notes: tuple[str, ...]


@dataclass
class EngineOperations:
    """The engine's operations on one stack; `preview` and `up` run under the policies."""

    engine: Engine
    project: RehearsalProject
    fake: Fake
    progress: Progress
    to_be_killed: bool = False
    """Whether the next operation is to be killed: until then the engine saves its state at every step."""

    @property
    def stack(self) -> str:
        return self.project.session.stack_name

    def _outcome(self, result: OperationResult) -> OperationOutcome:
        pool_types = self.project.session.target.pool_types
        return OperationOutcome(result.changes, result.seconds, tuple(pool_changes(result, pool_types)))

    def preview(self) -> OperationOutcome:
        return self._outcome(
            self.engine.preview(self.stack, self.progress, policy_packs=[self.project.policies])
        )

    def up(self) -> OperationOutcome:
        return self._up(self.project.policies)

    def _up(self, *policies: Path) -> OperationOutcome:
        saved_once = not self.to_be_killed
        return self._outcome(
            self.engine.up(self.stack, self.progress, policy_packs=policies, writes_state_once=saved_once)
        )

    def refresh(self) -> OperationOutcome:
        return self._outcome(self.engine.refresh(self.stack, self.progress))

    def destroy(self) -> OperationOutcome:
        saved_once = not self.to_be_killed
        return self._outcome(self.engine.destroy(self.stack, self.progress, writes_state_once=saved_once))

    def adopt(self) -> OperationOutcome:
        return self._outcome(self.engine.adopt(self.stack, self.progress))

    def delete_state(self) -> None:
        self.engine.forget(self.stack)

    def unprotect(self) -> OperationOutcome | None:
        """Turn deletion protection off, without the policies, which would refuse it without an exemption."""
        if not self._is_protected:
            return None
        self._set_protection(on=False)
        return self._up()

    def request_protection(self) -> None:
        """Write deletion protection into the stack file again; the next `up` applies it."""
        if self._is_protected:
            self._set_protection(on=True)

    @property
    def _is_protected(self) -> bool:
        """Whether the stack file, as its owner wrote it, asks for deletion protection."""
        return getattr(self.project.session.stack.target, "deletion_protection", False)

    def _set_protection(self, *, on: bool) -> None:
        data = self.project.read()
        data["config"]["trainyard:stack"]["target"]["deletion_protection"] = on
        self.project.rewrite(data)

    def change(self) -> Mapping[str, int]:
        data = self.project.read()
        # With defaults written out, more nodes do not also raise the queue's quota.
        section = data["config"][STACK_KEY] = completed(read(self.project.file)[0]).data
        expected = self.fake.change(section)
        self.project.rewrite(data)
        return expected

    def resources(self) -> Sequence[Mapping[str, Any]]:
        return self.engine.resources(self.stack)

    def leaks(self) -> Sequence[Leak]:
        return leaks_left(self.project.session.paths)

    def kill(self) -> None:
        for child in psutil.Process().children(recursive=True):
            if child.name() == "pulumi":
                child.kill()
        self.to_be_killed = False
