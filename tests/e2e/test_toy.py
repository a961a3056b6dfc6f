"""A rehearsal of the tests' toy target on the real engine, with the fake in the target's folder."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from engine.paths import Paths
from infra.common import target_registry as registry
from infra.errors import InputError
from rehearsal import fake
from rehearsal.faults import Faults
from tests.infra.plan import stack_file
from trainyard.commands.stack.rehearse.command import rehearse_isolated
from trainyard.stack.session import Session


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """The local stack's file with another provider."""
    package = "tests.infra.targets.toy"
    monkeypatch.setitem(registry.TARGETS, "toy", f"{package}.target:TARGET")
    monkeypatch.setitem(fake.FAKES, "toy", f"{package}.fake:FAKE")
    config = yaml.safe_load(stack_file("local").read_text())
    stack = config["config"]["trainyard:stack"]
    stack["target"] = {"kind": "toy", "address": "https://toy.invalid"}
    # The platform's objects are those of every target, and `tests/infra/targets/toy` plans them.
    stack["operators"] = dict.fromkeys(("jobset", "trainer", "mpi", "kueue"), "existing")
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / "Pulumi.toy.yaml").write_text(yaml.safe_dump(config))
    paths = Paths.from_environment()
    return Session("toy", replace(paths, state=tmp_path / "state", stacks_folder=tmp_path / "stacks"))


def test_a_foreign_target_passes_its_lifecycle_by_a_separate_fake(session: Session) -> None:
    done = rehearse_isolated(session, Faults(), adopts=True)
    names = [phase.name for phase in done.phases]
    assert names[:6] == ["preview", "up", "adopt", "up after adoption", "up again", "refresh"]
    changes = {phase.name: phase.changes for phase in done.phases}
    assert changes["adopt"] == {"adopt": 1}
    assert any("LocalQueue" in urn for urn in done.created)


def test_a_target_without_a_fake_is_refused(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(fake.FAKES, "toy")
    with pytest.raises(InputError, match="kind: toy"):
        rehearse_isolated(session, Faults())
