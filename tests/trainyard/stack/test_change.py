"""`trainyard up` evaluates the policies in a preview before it creates anything."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.events import OperationResult
from infra.errors import Problem, TrainyardError
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

    def preview(self, stack: str, _progress: object, **_options: object) -> OperationResult:
        self.asked.append("preview")
        if self._refuses:
            raise TrainyardError([Problem("bucket", "no lock", "a lock", "declare it")])
        return OperationResult(stack, "preview", {}, 0.0, is_preview=True)

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


def test_an_embedded_cluster_starts_without_a_preview(tmp_path: Path) -> None:
    engine = RecordingEngine(refuses=False)
    bring_up(session(engine, tmp_path, is_embedded=True), None)
    assert engine.asked == ["up"]


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
