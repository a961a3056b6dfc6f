"""`trainyard down` of a stack with protected resources."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.paths import Paths
from infra.clients.kubernetes import ApiError
from infra.errors import Problem, TrainyardError
from infra.stackfile.queue import TeamSpec
from trainyard.jobs.down import _drain_elsewhere, take_down
from trainyard.jobs.key import QUEUE


class ProtectedEngine:
    """A fake engine with a protected resource; any other call fails."""

    def recover(self, _stack: str) -> None: ...

    def check_unprotected(self, _stack: str) -> None:
        raise TrainyardError([Problem("destroy dev", "1 protected resources", "none", "unprotect it")])


def test_no_job_is_cancelled_if_a_protected_resource_prevents_the_down(tmp_path: Path) -> None:
    session: Any = SimpleNamespace(
        stack=SimpleNamespace(name="dev"),
        stack_name="dev",
        cluster_exists=False,
        is_embedded=False,
        paths=Paths(cache=tmp_path / "cache", state=tmp_path / "state", repository=tmp_path),
        engine=ProtectedEngine(),
    )
    with pytest.raises(TrainyardError, match="protected"):
        take_down(session, purge=False)


def test_the_command_that_deletes_retained_checkpoints_works_without_a_clone(tmp_path: Path) -> None:
    paths = Paths(cache=tmp_path / "cache", state=tmp_path / "state", repository=tmp_path)
    paths.cluster_data("dev").mkdir(parents=True)
    lines: list[str] = []
    without_it = {"recover": lambda _: None, "check_unprotected": lambda _: None, "exists": lambda _: False}
    session: Any = SimpleNamespace(
        stack=SimpleNamespace(name="dev"),
        stack_name="mine",
        cluster_exists=False,
        is_embedded=True,
        paths=paths,
        engine=SimpleNamespace(**without_it),
        console=SimpleNamespace(print=lambda text, **_: lines.append(text)),
    )
    take_down(session, purge=False)
    assert lines[-1].endswith("(delete them: trainyard down -s mine --purge)")


def test_jobs_of_others_in_a_namespace_that_a_team_names_are_not_cancelled() -> None:
    about = {"namespace": "team-research"}
    jobs: dict[str, Any] = {
        name: {"metadata": {**about, "name": name, "labels": {QUEUE: queue}}}
        for name, queue in {"tune": "research", "theirs": "gpu", "unqueued": ""}.items()
    }
    team = TeamSpec.model_validate({"name": "research", "queue": "gpu", **about})
    api = SimpleNamespace(
        items=lambda path, *_, **__: list(jobs.values()) if path.endswith("trainjobs") else [],
        find=lambda path: jobs.get(path.rpartition("/")[2]),
        delete=lambda path, *_: jobs.pop(path.rpartition("/")[2]),
    )
    log = SimpleNamespace(log=lambda _: None)
    session: Any = SimpleNamespace(stack=SimpleNamespace(teams=[team]), namespaces=[], api=api, progress=log)
    _drain_elsewhere(session)
    assert jobs.keys() == {"theirs", "unqueued"}


def test_a_list_of_jobs_that_is_refused_ends_the_down_before_anything_is_deleted() -> None:
    """A cluster that cannot be reached has no list, and `down` goes on; one that refuses it has jobs."""

    def refuse(_path: str, **_: object) -> None:
        raise ApiError(500, "etcd leader changed")

    session: Any = SimpleNamespace(
        stack=SimpleNamespace(teams=[]), namespaces=[], api=SimpleNamespace(items=refuse)
    )
    with pytest.raises(ApiError, match="etcd leader changed"):
        _drain_elsewhere(session)
