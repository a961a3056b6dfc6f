"""`trainyard up` evaluates the policies in a preview before it creates anything."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.events import EngineStep, OperationResult
from infra.errors import InputError, Problem, TrainyardError
from infra.targets.advice import next_step
from trainyard.jobs.down import take_down
from trainyard.stack.change import bring_up, show_preview
from trainyard.stack.session import Session


class RecordingEngine:
    """A fake engine that records its calls; with `refuses`, previews fail as the policies would make them."""

    def __init__(self, *, refuses: bool, fails: bool = False) -> None:
        self.asked: list[str] = []
        self._refuses = refuses
        self._fails = fails

    def recover(self, _stack: str) -> None:
        return None

    def is_empty(self, _stack: str) -> bool:
        return False

    def exists(self, _stack: str) -> bool:
        return True

    def preview(self, stack: str, _progress: object, **options: object) -> OperationResult:
        self.asked.append("preview" + " --refresh" * (options["refresh"] is True))
        if self._refuses:
            raise TrainyardError([Problem("bucket", "no lock", "a lock", "declare it")])
        step = EngineStep("create", "urn:pulumi:lab::p::aws:s3/bucket:Bucket::data", {}, {})
        return OperationResult(stack, "preview", {}, 0.0, is_preview=True, steps=(step,))

    def up(self, stack: str, _progress: object, **_options: object) -> OperationResult:
        self.asked.append("up")
        if self._fails:
            raise TrainyardError([Problem("role", "denied", "no error", "ask for it")])
        return OperationResult(stack, "up", {}, 0.0)

    def resources(self, _stack: str) -> list[dict[str, Any]]:
        kind = "aws:s3/bucket:Bucket"
        urn = f"urn:pulumi:lab::p::{kind}::data"
        return [{"urn": urn, "type": kind, "custom": True, "id": "data"}]

    def outputs(self, _stack: str, *, show_secrets: bool) -> dict[str, str]:
        return {}


def session(engine: RecordingEngine, folder: Path, *, is_embedded: bool) -> Session:
    """Make a fake session for `up` without a job."""
    (folder / "Pulumi.lab.yaml").write_text("config: {}\n")
    fake = SimpleNamespace(
        stack=SimpleNamespace(
            name="lab",
            operators=SimpleNamespace(training_operator=None),
            teams=(SimpleNamespace(name="research"),),
        ),
        stack_name="lab",
        stack_file=folder / "Pulumi.lab.yaml",
        paths=SimpleNamespace(state=folder, policies=folder),
        toolchain=SimpleNamespace(ensure=lambda *_: None, names=lambda: ()),
        progress=None,
        packages=SimpleNamespace(ensure=lambda _: None),
        console=SimpleNamespace(print=lambda *_, **__: None),
        engine=engine,
        target=SimpleNamespace(data={}, pool_types={}, plugins=(), artifacts=(), programs=()),
        is_fleet=False,
        is_embedded=is_embedded,
        is_searchable=False,
        is_of_others=False,
        cluster_exists=False,
        check_host=lambda: None,
    )
    return cast(Session, cast(Any, fake))


def test_a_clouds_stack_is_previewed_before_anything_is_created(tmp_path: Path) -> None:
    engine = RecordingEngine(refuses=False)
    bring_up(session(engine, tmp_path, is_embedded=False), None)
    assert engine.asked == ["preview", "up"]
    bring_up(session(engine, tmp_path, is_embedded=False), None, refresh=True)
    assert engine.asked[2:] == ["preview --refresh", "up"], "what is gone is no obstacle to its preview"


def test_a_change_of_an_object_that_is_gone_names_the_way_back() -> None:
    """The message is the Kubernetes provider's, from an update after `kubectl delete`."""
    gone = 'deployments.apps "uploads" not found'
    said = f'update of resource "urn" failed: {gone}\nunable to get cluster state: {gone}'
    assert "`trainyard up --refresh`" in next_step(None, said)


def test_a_failed_update_says_what_it_has_left_without_its_companions(tmp_path: Path) -> None:
    engine = RecordingEngine(refuses=False, fails=True)
    failing = session(engine, tmp_path, is_embedded=False)
    with pytest.raises(TrainyardError) as raised:
        bring_up(failing, lambda *_: pytest.fail("its job runs"))
    assert raised.value.problems[0].got == "denied"
    assert "no BucketPublicAccessBlock" in str(raised.value)


def test_nothing_is_created_if_the_policies_refuse_the_preview(tmp_path: Path) -> None:
    engine = RecordingEngine(refuses=True)
    with pytest.raises(TrainyardError, match="no lock"):
        bring_up(session(engine, tmp_path, is_embedded=False), None)
    assert engine.asked == ["preview"]


def test_up_with_a_plan_does_nothing_that_was_not_approved(tmp_path: Path) -> None:
    engine, plan = RecordingEngine(refuses=False), tmp_path / "plan.json"
    plan.write_text("[]")
    for is_embedded in (False, True):
        changed = session(engine, tmp_path, is_embedded=is_embedded)
        with pytest.raises(TrainyardError, match="the plan has none"):
            bring_up(changed, None, plan=plan)
        show_preview(changed, plan)
        bring_up(changed, None, plan=plan)
        assert engine.asked == ["preview", "preview", "preview", "up"]
        engine.asked.clear()
        plan.write_text("[]")
    with pytest.raises(InputError, match="--refresh"):
        bring_up(changed, None, plan=plan, refresh=True)


def test_an_embedded_cluster_starts_without_a_preview(tmp_path: Path) -> None:
    engine = RecordingEngine(refuses=False)
    bring_up(session(engine, tmp_path, is_embedded=True), None)
    assert engine.asked == ["up"]


def test_an_embedded_cluster_deletes_no_team_that_has_a_job(tmp_path: Path) -> None:
    at: Any = session(engine := RecordingEngine(refuses=False), tmp_path, is_embedded=True)
    about = {"metadata": {"name": "team-gone", "labels": {"trainyard.dev/team": "gone"}}}
    kind, claim = "kubernetes:core/v1:Namespace", {"metadata": {"name": "data"}}
    gone = {"urn": f"urn:pulumi:lab::p::{kind}::team-gone", "type": kind, "custom": True, "inputs": about}
    at.engine.resources = lambda _: [gone]
    at.api = SimpleNamespace(items=lambda path, **_: [claim] if "claims" in path else [])
    at.stack.model_dump, at.cluster = lambda **_: {}, SimpleNamespace(up=lambda: None)
    looks: list[Callable[[], None]] = [lambda: bring_up(at, None), lambda: show_preview(at)]
    for look in looks:
        with pytest.raises(InputError, match=r"namespace team-gone would be deleted, with the claims data"):
            look()
        at.cluster_exists = True
    assert engine.asked == ["preview"]


class EngineBesideOthers(RecordingEngine):
    """A fake engine that starts another command while it operates."""

    def __init__(self, other: Callable[[], None]) -> None:
        super().__init__(refuses=False)
        self._other = other

    def up(self, stack: str, _progress: object, **_options: object) -> OperationResult:
        self._other()
        return super().up(stack, _progress)


def refused(command: Callable[[], None]) -> str:
    with pytest.raises(TrainyardError) as raised:
        command()
    return str(raised.value)


def test_no_other_command_on_the_stack_starts_while_its_resources_change(tmp_path: Path) -> None:
    holder = re.compile(rf"held by process {os.getpid()} since \d.*: \S")
    beside = session(RecordingEngine(refuses=False), tmp_path, is_embedded=True)

    def try_others() -> None:
        for command in (
            lambda: show_preview(beside),
            lambda: bring_up(beside, None),
            lambda: take_down(beside, purge=False),
        ):
            assert holder.search(refused(command))

    bring_up(session(EngineBesideOthers(try_others), tmp_path, is_embedded=True), None)
    assert beside.engine.asked == []  # type: ignore[attr-defined]
    bring_up(beside, None)


def test_a_stack_is_previewed_and_not_changed_while_up_follows_its_job(tmp_path: Path) -> None:
    following = session(RecordingEngine(refuses=False), tmp_path, is_embedded=True)
    beside = session(RecordingEngine(refuses=False), tmp_path, is_embedded=True)

    def follow(*_: object) -> None:
        show_preview(beside)
        assert "stack lab\n" in refused(lambda: bring_up(beside, None))

    bring_up(following, follow)
    assert beside.engine.asked == ["preview"]  # type: ignore[attr-defined]
