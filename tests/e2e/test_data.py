"""On the real engine, with fakes of the clouds: keys of the stack file that would replace or delete data are
refused in words, with what is lost, its size and its key; and a backup is restored on an empty host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.engine import Engine
from engine.paths import Paths
from infra.errors import TrainyardError
from rehearsal.faults import Faults
from tests.patches import changed
from trainyard.commands.stack.rehearse.command import rehearse_isolated
from trainyard.commands.stack.rehearse.operations import EngineOperations, OperationOutcome
from trainyard.stack.backup import Backup, back_up, take_over
from trainyard.stack.change import show_preview
from trainyard.stack.data import release
from trainyard.stack.session import Session

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

Edit = Mapping[str, Any]
"""As in losses.yaml."""


class RehearsedSession(Session):
    """A session on the engine of a rehearsal, whose cluster nobody can ask."""

    is_of_others = False

    def __init__(self, paths: Paths, operations: EngineOperations, engine: Engine) -> None:
        super().__init__(operations.stack, paths, operations.project.session.console)
        self.__dict__["engine"] = engine
        self.__dict__["toolchain"] = type("Ready", (), {"ensure": lambda *_: None})()


class Stopped(Exception):  # noqa: N818 -- it is no error
    """The rehearsal has shown what the test is about; its other phases are not run."""


@contextmanager
def edited(operations: EngineOperations, edit: Edit) -> Iterator[Session]:
    """Edit the rehearsed stack's file within a block; return a session that sees it, on the same engine."""
    before = operations.project.file.read_text()
    data = operations.project.read()
    stack = data["config"]["trainyard:stack"]
    kept = {"teams": stack["teams"][: edit["teams"]]} if "teams" in edit else {}
    data["config"]["trainyard:stack"] = changed(stack, {**edit, **kept})
    if edit.get("target.deletion_protection") is False:
        data["config"]["trainyard:exemptions"] = exemptions()
    operations.project.rewrite(data)
    try:
        yield RehearsedSession(operations.project.session.paths, operations, operations.engine)
    finally:
        operations.project.file.write_text(before)


def exemptions() -> list[dict[str, str]]:
    """Return those that a guide prints for a stack without protection."""
    about = {"policy": "security-deletion-protection", "owner": "ml-platform"}
    about |= {"reason": "to be replaced", "expires": str(date.today() + timedelta(days=30))}
    filesystem = "aws:fsx/lustreFileSystem:LustreFileSystem::training-lustre"
    return [{**about, "resource": each} for each in ("aws:eks/cluster:Cluster::training", filesystem)]


def refused(operations: EngineOperations, edit: Edit) -> str:
    with edited(operations, edit) as session:
        try:
            show_preview(session)
        except TrainyardError as error:
            return str(error)
    return "nothing was refused"


def restored(operations: EngineOperations, folder: Path) -> Mapping[str, int]:
    """Back the stack up, restore it on a host without anything, and return what a preview finds there."""
    own = operations.project.session.paths
    file = folder / "kept" / "backup.json"
    back_up(RehearsedSession(own, operations, operations.engine), file)
    assert file.stat().st_mode & 0o777 == 0o600
    paths = replace(own, state=folder / "state", stacks_folder=folder / "stacks")
    tools = Session(operations.stack, replace(Paths.from_environment(), state=paths.state)).toolchain
    variables = {**operations.engine._environment, **tools.environment()}
    engine = Engine(paths, {**variables, "TRAINYARD_STACKS": str(paths.stacks)})
    there = RehearsedSession(paths, operations, engine)
    backup = Backup.read(file)
    there.stack_file.parent.mkdir()
    there.stack_file.write_text(backup.stack_file)
    take_over(backup, there)
    return there.engine.preview(there.stack_name, there.progress).changes


LOSSES = yaml.safe_load(Path(__file__).with_name("losses.yaml").read_text())
FIRST = [pytest.param(stack, 1, id=stack) for stack in LOSSES]
"""The first key of each target at each change, and all of them in the soak, by the same code."""
ALL = [pytest.param(stack, None, id=f"{stack}-all", marks=pytest.mark.soak) for stack in LOSSES]


@pytest.mark.parametrize(("stack", "count"), [*FIRST, *ALL])
def test_no_key_loses_data_without_words_and_a_backup_is_restored_elsewhere(
    stack: str, count: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = LOSSES[stack][:count]
    found: list[str] = []
    previewed: dict[str, int] = {}

    def look(operations: EngineOperations) -> OperationOutcome:
        if operations.engine.is_empty(operations.stack):
            return up(operations)
        own = operations.project.session.paths
        (own.repository / "policies").symlink_to(operations.project.policies)
        found.extend(refused(operations, each["edit"]) for each in losses)
        previewed.update(restored(operations, tmp_path / "elsewhere"))
        if stack == "azure":  # the way to a larger filesystem, where one cannot grow
            with edited(operations, losses[0]["edit"]) as session:
                release(session, "training-lustre", 3600)
                show_preview(session)
                previewed["replaced"] = up(operations).changes.get("replace", 0)
        raise Stopped

    up = EngineOperations.up
    monkeypatch.setattr(EngineOperations, "up", look)
    monkeypatch.setenv("TRAINYARD_STATE", str(tmp_path / "state"))
    with pytest.raises(Stopped):
        rehearse_isolated(Session(stack, Paths.from_environment()), Faults())
    for text, each in zip(found, losses, strict=True):
        assert each["words"] in text
        assert "pulumi state unprotect" not in text and "`protect` flag" not in text
    assert previewed.pop("replaced", 0) == (1 if stack == "azure" else 0)
    assert previewed.keys() == {"same"}
