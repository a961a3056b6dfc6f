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


def without_efa(config: dict[str, Any]) -> None:
    config["trainyard:stack"]["target"]["filesystem"]["efa"] = False


def without_efa_and_protection(config: dict[str, Any]) -> None:
    """The switch with the exemptions that the guide prints, and a change, in one edit."""
    without_efa(config)
    config["trainyard:stack"]["target"]["deletion_protection"] = False
    expires = str(date.today() + timedelta(days=30))
    about = {"policy": "security-deletion-protection", "owner": "ml-platform", "expires": expires}
    about["reason"] = "the filesystem is to be replaced by one without EFA"
    filesystem = "aws:fsx/lustreFileSystem:LustreFileSystem::training-lustre"
    exempt = [{**about, "resource": each} for each in ("aws:eks/cluster:Cluster::training", filesystem)]
    config["trainyard:exemptions"] = [*config.get("trainyard:exemptions", ()), *exempt]


def without_team(config: dict[str, Any]) -> None:
    stack = config["trainyard:stack"]
    stack["teams"] = [each for each in stack["teams"] if each["name"] != "platform"]


EDITS: dict[Edit, str] = {
    without_efa: "target.filesystem.efa changed from true",
    without_efa_and_protection: "target.filesystem.efa changed from true",
    without_team: "namespace team-platform would be deleted",
}


def test_each_key_that_loses_data_is_refused_with_its_size_and_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[Edit, str] = {}

    def look(operations: EngineOperations) -> None:
        found.update({edit: refused(operations, edit) for edit in EDITS})
        raise Stopped

    monkeypatch.setattr(EngineOperations, "refresh", look)
    monkeypatch.setenv("TRAINYARD_STATE", str(tmp_path / "state"))
    session = Session("aws", Paths.from_environment())
    assert load(session.stack_file).teams
    with pytest.raises(Stopped):
        rehearse_isolated(session, Faults())
    for edit, words in EDITS.items():
        assert words in found[edit], found[edit]
        assert "pulumi state unprotect" not in found[edit]
    assert "filesystem training-lustre (19,200 GiB) would be replaced by an EMPTY one" in found[without_efa]
