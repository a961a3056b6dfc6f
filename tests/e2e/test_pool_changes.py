"""The lifecycle of a small stack: faults at its first `up`, then previews of how its pools change."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from engine.paths import Paths
from rehearsal.faults import Faults
from rehearsal.rehearse import Rehearsal
from tests.patches import changed
from trainyard.commands.stack.rehearse import command
from trainyard.commands.stack.rehearse.operations import EngineOperations
from trainyard.stack.session import Session

pytestmark = pytest.mark.engine

EDITS: Mapping[str, Mapping[str, Any]] = {
    "machine": {"pools[0].machine": "g6.2xlarge"},
    # Machines have the tags by their launch template.
    "tags and name": {"target.tags.owner": "somebody-else", "pools[0].name": "other"},
    "size": {"pools[0].nodes": 2},
}
"""Edits; the last one has the resources of the update, since policies require a preview of them."""


class Watched(EngineOperations):
    """Engine operations that preview other changes before the rehearsal's change."""

    announced: ClassVar[dict[str, tuple[str, ...]]] = {}

    def change(self) -> Mapping[str, int]:
        before = self.project.file.read_text()
        for name, edit in EDITS.items():
            data = self.project.read()
            data["config"]["trainyard:stack"] = changed(data["config"]["trainyard:stack"], edit)
            self.project.rewrite(data)
            self.announced[name] = self.preview().notes
            self.project.file.write_text(before)
        return super().change()


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    session = Session("aws-dev", replace(Paths.from_environment(), state=tmp_path_factory.mktemp("life")))
    faults = Faults(fail="aws:s3/bucket:Bucket", no_capacity="gpu", crash_after=12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "EngineOperations", Watched)
        return command.rehearse_isolated(session, faults)


def test_after_faults_of_the_cloud_and_a_kill_the_next_up_converges(life: Rehearsal) -> None:
    messages = " ".join(life.happened)
    assert "aws:s3/bucket:Bucket dev-bucket was refused" in messages
    assert "pool gpu got no machines" in messages
    assert "the engine was killed after" in messages
    rest = ["up again", "refresh", "update", "unprotect", "destroy"]
    assert [phase.name for phase in life.phases] == ["preview", "up after the fault", *rest]


def test_a_preview_reports_how_each_pool_changes(life: Rehearsal) -> None:
    assert Watched.announced["size"] == ("pool gpu: nodes 1 → 2, in place",)
    rolling = "rolling, nodes are replaced one by one: launchTemplate.version"
    (machine,) = Watched.announced["machine"]
    assert machine.startswith("pool gpu: replaced for instanceTypes: new nodes are created")
    assert Watched.announced["tags and name"] == (
        "pool gpu: deleted, 1 node",
        "pool other: new, 1 node",
        f"pool system: {rolling}",
    )
    (update,) = (phase for phase in life.phases if phase.name == "update")
    assert update.notes == Watched.announced["size"]
