"""Keys of the stack file that would replace or delete data: on the real engine, with fakes of the clouds,
each is refused in words, with what is lost, its size and its key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from engine.paths import Paths
from infra.errors import TrainyardError
from infra.stackfile import load
from rehearsal.faults import Faults
from trainyard.commands.stack.rehearse.command import rehearse_isolated
from trainyard.commands.stack.rehearse.operations import EngineOperations
from trainyard.stack.change import show_preview
from trainyard.stack.session import Session

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

Edit = Callable[[dict[str, Any]], object]


class Stopped(Exception):  # noqa: N818 -- it is no error
    """The rehearsal has shown what the test is about; its other phases are not run."""


@contextmanager
def edited(operations: EngineOperations, edit: Edit) -> Iterator[Session]:
    """Edit the rehearsed stack's file within a block; return a session that sees it, on the same engine."""
    before = operations.project.file.read_text()
    data = operations.project.read()
    edit(data["config"])
    operations.project.rewrite(data)
    own = operations.project.session
    session = Session(own.stack_name, own.paths, own.console)
    policies = own.paths.repository / "policies"
    if not policies.exists():
        policies.symlink_to(operations.project.policies)
    session.__dict__["engine"] = operations.engine
    session.__dict__["toolchain"] = type("Ready", (), {"ensure": lambda *_: None})()
    try:
        yield session
    finally:
        operations.project.file.write_text(before)


def refused(operations: EngineOperations, edit: Edit) -> str:
    with edited(operations, edit) as session, pytest.raises(TrainyardError) as caught:
        show_preview(session)
    return str(caught.value)


def set_key(*path: str | int, value: Any) -> Edit:
    def edit(config: dict[str, Any]) -> None:
        at: Any = config["trainyard:stack"]
        for part in path[:-1]:
            at = at[part]
        at[path[-1]] = value

    return edit


def unprotected(*edits: Edit) -> Edit:
    """The switch with the exemptions that the guide prints, and a change, in one edit."""
    kinds = (
        "aws:eks/cluster:Cluster::training",
        "aws:fsx/lustreFileSystem:LustreFileSystem::training-lustre",
    )
    about = {
        "policy": "security-deletion-protection",
        "owner": "ml-platform",
        "reason": "the filesystem is to be replaced by one without EFA",
    }
    expires = str(date.today() + timedelta(days=30))

    def edit(config: dict[str, Any]) -> None:
        config["trainyard:stack"]["target"]["deletion_protection"] = False
        exempt = [{**about, "resource": kind, "expires": expires} for kind in kinds]
        config["trainyard:exemptions"] = [*config.get("trainyard:exemptions", ()), *exempt]
        for each in edits:
            each(config)

    return edit


def without_team(name: str) -> Edit:
    def edit(config: dict[str, Any]) -> None:
        stack = config["trainyard:stack"]
        stack["teams"] = [each for each in stack["teams"] if each["name"] != name]

    return edit


AWS: dict[str, tuple[Edit, str]] = {
    "efa": (set_key("target", "filesystem", "efa", value=False), "target.filesystem.efa changed from true"),
    "both": (
        unprotected(set_key("target", "filesystem", "efa", value=False)),
        "target.filesystem.efa changed from true",
    ),
    "team": (without_team("platform"), "namespace team-platform would be deleted"),
}


@pytest.mark.parametrize("stack", ["aws"])
def test_each_key_that_loses_data_is_refused_with_its_size_and_key(
    stack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[str, str] = {}

    def look(operations: EngineOperations) -> None:
        for name, (edit, _) in AWS.items():
            found[name] = refused(operations, edit)
        raise Stopped

    monkeypatch.setattr(EngineOperations, "refresh", look)
    monkeypatch.setenv("TRAINYARD_STATE", str(tmp_path / "state"))
    session = Session(stack, Paths.from_environment())
    assert load(session.stack_file).teams
    with pytest.raises(Stopped):
        rehearse_isolated(session, Faults())
    for name, (_, words) in AWS.items():
        assert words in found[name], f"{name}: {found[name]}"
        assert "pulumi state unprotect" not in found[name]
    assert "filesystem training-lustre (19,200 GiB) would be replaced by an EMPTY one" in found["efa"]
