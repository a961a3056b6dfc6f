"""No operation loses data without the user's word for that resource."""

import io
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from engine.events import EngineStep
from infra.clients.kubernetes import NoAnswer
from infra.common.target_registry import target_of
from infra.errors import InputError, Problem, TrainyardError
from infra.stackfile.self_service import today
from tests.problems import problem_of
from tests.tables import table
from trainyard.jobs.down import take_down
from trainyard.stack import data
from trainyard.stack.data import Released, changed_keys, check_data, explained, release, show_fates
from trainyard.stack.session import Session

LUSTRE = "aws:fsx/lustreFileSystem:LustreFileSystem"
NAMESPACE = "kubernetes:core/v1:Namespace"
BEFORE = {
    "name": "training",
    "target": {"zones": ["a", "b"], "filesystem": {"efa": True}},
    "teams": [{"name": "x"}, {"name": "y"}],
}


def resource(kind: str, name: str, inputs: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    urn = f"urn:pulumi:mine::trainyard::trainyard:infra:AwsCluster${kind}::{name}"
    return {"urn": urn, "type": kind, "custom": True, "id": f"id-{name}", "inputs": inputs or {}, **more}


CLUSTER = {
    "urn": "urn:pulumi:mine::trainyard::trainyard:infra:AwsCluster::training",
    "type": "trainyard:infra:AwsCluster",
    "inputs": {"stack": BEFORE},
}
FILESYSTEM = resource(LUSTRE, "training-lustre", {"storageCapacity": 19200}, protect=True)
BUCKET = resource("aws:s3/bucket:Bucket", "training-bucket", {"bucket": "mine"}, retainOnDelete=True)
KEY = resource("aws:kms/key:Key", "training-key")
TEAM = resource(NAMESPACE, "team-x", {"metadata": {"name": "team-x", "labels": {"trainyard.dev/team": "x"}}})
ROLE = resource("aws:iam/role:Role", "training-nodes")


class FakeEngine:
    """Has a state, and records what was unprotected."""

    is_on_host = False

    def __init__(self, *resources: dict[str, Any]) -> None:
        self._resources = list(resources)
        self.unprotected: list[str] = []

    def exists(self, _stack: str) -> bool:
        return True

    def resources(self, _stack: str) -> list[dict[str, Any]]:
        return self._resources

    def unprotect(self, _stack: str, urn: str) -> None:
        self.unprotected.append(urn)

    def recover(self, _stack: str) -> None: ...

    def check_unprotected(self, _stack: str) -> None: ...

    def destroy(self, stack: str, *_: object, **__: object) -> Any:
        self._resources = []
        return SimpleNamespace(summary=lambda: f"destroy {stack}")


def nothing(_path: str, **_: object) -> list[Any]:
    return []


def session(
    folder: Path,
    *resources: dict[str, Any],
    spec: dict[str, Any] = BEFORE,
    embedded: bool = False,
    items: Callable[..., list[Any]] = nothing,
) -> Session:
    console = Console(file=io.StringIO(), width=200)
    fake = SimpleNamespace(
        stack_name="mine",
        stack=SimpleNamespace(
            name="training", model_dump=lambda **_: spec, teams=(), target=SimpleNamespace(kind="aws")
        ),
        target=target_of("aws"),
        engine=FakeEngine(CLUSTER, *resources),
        paths=SimpleNamespace(state=folder, cluster_data=lambda _: folder / "none"),
        console=console,
        progress=SimpleNamespace(log=lambda _: None),
        is_embedded=embedded,
        is_of_others=False,
        cluster_exists=False,
        namespaces=[],
        packages=SimpleNamespace(ensure=lambda _: None),
        api=SimpleNamespace(items=items),
    )
    return cast(Session, cast(Any, fake))


def step(op: str, of: dict[str, Any]) -> EngineStep:
    return EngineStep(op, of["urn"], of["inputs"], {})


def printed(of: Session) -> str:
    return str(cast(io.StringIO, of.console.file).getvalue())


@pytest.mark.parametrize(("op", "name", "keys", "path", "words"), table(__file__, "losses"))
def test_a_step_that_loses_data_is_refused_in_words_with_its_key(
    tmp_path: Path, op: str, name: str, keys: dict[str, Any], path: str, words: str
) -> None:
    [lost] = [each for each in (FILESYSTEM, BUCKET, TEAM) if each["urn"].endswith(f"::{name}")]
    on = session(tmp_path, lost, ROLE, spec={**BEFORE, **keys})
    problem = problem_of(lambda: check_data(on, [step("update", ROLE), step(op, lost)]))
    assert problem.path == path
    assert words in problem.got
    assert f"trainyard stack unprotect {name} -s mine --for 2h" in problem.fix


CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"
OURS = resource(CLAIM, "c", {"metadata": {"name": "ours", "namespace": "team-x"}})


def in_use(path: str, **_: object) -> list[Any]:
    """Return a job that runs and one that has ended, or a claim of the stack's and one of a user."""
    if "workloads" not in path:
        return [{"metadata": {"name": each}} for each in ("ours", "data")]
    over = {"type": "Finished", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    jobs = {"digits": [], "ended": [over]}
    owned = {name: {"ownerReferences": [{"kind": "TrainJob", "name": name}]} for name in jobs}
    return [{"metadata": owned[name], "status": {"conditions": each}} for name, each in jobs.items()]


def unknown(_path: str, **_: object) -> list[Any]:
    raise NoAnswer("connection refused")


@pytest.mark.parametrize(("days", "grace"), [(None, 0), (1, 3), (3, 3), (9, 3)])
@pytest.mark.parametrize("items", [nothing, in_use, unknown])
@pytest.mark.parametrize("embedded", [False, True])
def test_a_teams_namespace_goes_only_when_it_is_empty_and_the_team_was_closed_for_the_time_of_grace(
    tmp_path: Path, days: int | None, grace: int, items: Callable[..., list[Any]], embedded: bool
) -> None:
    """On the embedded cluster an empty one goes at once."""
    closed = {"closed": str(today() - timedelta(days))} if days is not None else {}
    before = {**BEFORE, "teams": [{"name": "x", **closed}], "self_service": {"grace_days": grace}}
    cluster = {**CLUSTER, "inputs": {"stack": before}}
    at = session(tmp_path, TEAM, OURS, spec=BEFORE, embedded=embedded, items=items)
    cast(Any, at).engine = FakeEngine(cluster, TEAM, OURS)
    look = partial(data.check_teams, at) if embedded else partial(check_data, at, [step("delete", TEAM)])
    if items is nothing and (embedded or (days is not None and days >= grace)):
        look()
        return
    problem = problem_of(look)
    said = {nothing: "deleted", unknown: "which is unknown: connection refused"}
    assert said.get(items, "with the jobs digits and the claims data") in problem.got


def test_steps_that_lose_nothing_pass(tmp_path: Path) -> None:
    steps = [step("update", FILESYSTEM), step("delete", ROLE), step("create-replacement", ROLE)]
    check_data(session(tmp_path, FILESYSTEM, ROLE), steps)


def test_a_smaller_size_is_a_loss_whatever_the_engine_plans(tmp_path: Path) -> None:
    mine = session(tmp_path, FILESYSTEM)
    inputs = {"storageCapacity": 38400}
    check_data(mine, [EngineStep("update", FILESYSTEM["urn"], FILESYSTEM["inputs"], inputs)])
    with pytest.raises(InputError, match="EMPTY one, since none can shrink"):
        check_data(mine, [EngineStep("update", FILESYSTEM["urn"], inputs, FILESYSTEM["inputs"])])


def test_sizes_of_claims_are_compared_as_quantities() -> None:
    kind = target_of("coreweave").data["kubernetes:core/v1:PersistentVolumeClaim"]
    claim = {"spec": {"resources": {"requests": {"storage": "2Ti"}}}}
    assert (kind.shown_size(claim), kind.size_in(claim)) == ("2Ti", 2 * 1024**2)
    assert kind.size_in({}) is None


def test_the_engines_own_words_about_protection_are_replaced_by_ours(tmp_path: Path) -> None:
    refused = (
        f'unable to replace resource "{FILESYSTEM["urn"]}"\nas it is currently marked for protection.'
        " To unprotect the resource, remove the `protect` flag"
    )
    other = Problem("role", "denied", "no error", "ask for it")
    error = TrainyardError([Problem("preview", refused, "no error", "fix it"), other])
    found = explained(session(tmp_path, FILESYSTEM), error)
    assert [each.path for each in found.problems] == ["training-lustre", "role"]
    assert "EMPTY" in found.problems[0].got
    assert "protect` flag" not in str(found)
    assert explained(session(tmp_path), TrainyardError([other])).problems == (other,)


def test_one_resource_is_released_for_a_time_and_no_other(tmp_path: Path) -> None:
    mine = session(tmp_path, FILESYSTEM, TEAM)
    release(mine, "training-lustre", 3600)
    assert cast(Any, mine.engine).unprotected == [FILESYSTEM["urn"]]
    assert "filesystem training-lustre (19,200 GiB): `up` may replace or delete it until" in printed(mine)
    check_data(mine, [step("create-replacement", FILESYSTEM)])
    problem_of(lambda: check_data(mine, [step("create-replacement", FILESYSTEM), step("delete", TEAM)]))
    Released.of(mine).add("training-lustre", time.time() - 1)
    with pytest.raises(InputError):
        check_data(mine, [step("create-replacement", FILESYSTEM)])


def test_only_what_has_data_can_be_released(tmp_path: Path) -> None:
    problem = problem_of(lambda: release(session(tmp_path, FILESYSTEM, ROLE), "training-nodes", 60))
    assert problem.allowed == "training-lustre"


def test_down_lists_what_is_deleted_kept_and_expires(tmp_path: Path) -> None:
    mine = session(tmp_path, FILESYSTEM, BUCKET, KEY, ROLE)
    assert [str(each) for each in show_fates(mine)] == ["filesystem training-lustre (19,200 GiB)"]
    assert printed(mine).splitlines() == [
        "deleted with all data",
        "  filesystem training-lustre (19,200 GiB): "
        + target_of("aws").data[LUSTRE].back.replace("{}", "id-training-lustre"),
        "kept, and billed until you run",
        "  bucket training-bucket: aws s3 rb s3://mine --force",
        "deleted by the cloud later",
        "  encryption key training-key: in 30 days",
    ]


def down(mine: Session, monkeypatch: pytest.MonkeyPatch, *, typed: str | None, confirmed: bool) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: typed is not None))
    monkeypatch.setattr("builtins.input", lambda _: typed)
    monkeypatch.setattr("trainyard.jobs.down._drain_elsewhere", lambda _: None)
    take_down(mine, purge=False, confirmed=confirmed)


@pytest.mark.parametrize(
    ("typed", "confirmed", "goes_on"),
    [("mine", False, True), ("yes", False, False), (None, False, False), (None, True, True)],
)
def test_down_asks_for_the_stacks_name_before_it_deletes_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str | None, confirmed: bool, goes_on: bool
) -> None:
    mine = session(tmp_path, FILESYSTEM)
    if goes_on:
        down(mine, monkeypatch, typed=typed, confirmed=confirmed)
    else:
        with pytest.raises(InputError, match="the stack's name, mine"):
            down(mine, monkeypatch, typed=typed, confirmed=confirmed)
    assert (mine.engine.resources("mine") == []) == goes_on


def test_what_the_cloud_cannot_save_before_the_end_is_not_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise TrainyardError([Problem("export", "FAILED", "all files", "try again")])

    monkeypatch.setattr("infra.targets.aws.account.exports.export", refuse)
    mine = session(tmp_path, FILESYSTEM)
    with pytest.raises(TrainyardError, match="FAILED"):
        down(mine, monkeypatch, typed="mine", confirmed=False)
    assert mine.engine.resources("mine") != []


def test_down_without_data_asks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = session(tmp_path, BUCKET, ROLE)
    down(mine, monkeypatch, typed=None, confirmed=False)
    assert mine.engine.resources("mine") == []


def test_purge_is_refused_where_it_would_purge_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="leave --purge out"):
        take_down(session(tmp_path, FILESYSTEM), purge=True, confirmed=True)


def test_a_stack_that_was_never_up_has_no_changes() -> None:
    assert changed_keys([], BEFORE) == {}
