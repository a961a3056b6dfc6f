"""The resource `ClusterClaim`, on a fake API server: created once, refused to a second stack, released."""

from collections.abc import Iterator
from socket import gethostname
from typing import Any, ClassVar

import pytest
import yaml

from engine.provider.cluster_claim import PATH, ClusterClaim, state_at, taken
from engine.provider.resource import ResourceNotFound
from infra.errors import TrainyardError
from tests.engine.progress import RecordedProgress
from tests.servers import QuietHandler, kubeconfig_of, serving


class FakeApiServer(QuietHandler):
    """Has one ConfigMap at most; as the real one it refuses a second creation, and a missing namespace."""

    stored: ClassVar[dict[str, Any]] = {}
    namespace_after: ClassVar[list[int]] = []
    """A request for each time that the namespace is still missing."""

    def do_GET(self) -> None:
        found = self.stored.get(self.path)
        self.respond(200 if found else 404, found or {"message": "not found"})

    def do_POST(self) -> None:
        body = self.body()
        path = f"{self.path}/{body['metadata']['name']}"
        if self.namespace_after:
            self.namespace_after.pop()
            self.respond(404, {"message": 'namespaces "kube-system" not found'})
        elif path in self.stored:
            self.respond(409, {"message": "already exists"})
        else:
            self.stored[path] = body
            self.respond(201, body)

    def do_PATCH(self) -> None:
        body = self.body()
        path = self.path.partition("?")[0]
        self.stored[path]["data"] |= body["data"]
        self.respond(200, self.stored[path])

    def do_DELETE(self) -> None:
        self.respond(200 if self.stored.pop(self.path, None) else 404, {"message": "not found"})


@pytest.fixture
def server() -> Iterator[type[FakeApiServer]]:
    FakeApiServer.stored, FakeApiServer.namespace_after = {}, []
    with serving(FakeApiServer) as listening:
        FakeApiServer.address = f"http://127.0.0.1:{listening.server_port}"  # type: ignore[attr-defined]
        yield FakeApiServer


def inputs(server: Any, owner: str) -> dict[str, Any]:
    return {"kubeconfig": yaml.safe_dump(kubeconfig_of(server.address)), "owner": owner}


def create(server: Any, owner: str) -> None:
    ClusterClaim().create(inputs(server, owner), RecordedProgress())


def test_a_second_stack_is_refused_with_the_first_ones_name_and_the_way_out(server: Any) -> None:
    create(server, "trainyard/prod")
    before = dict(server.stored[PATH]["data"])
    with pytest.raises(TrainyardError, match="kubectl delete configmap trainyard") as caught:
        create(server, "trainyard/dev")
    assert caught.value.problems[0].got == f"stack trainyard/prod has it since {before['since']}"
    assert server.stored[PATH]["data"] == before


def test_a_claim_says_where_the_state_of_its_stack_is(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULUMI_BACKEND_URL", "s3://me:key@bucket/state?region=x")
    create(server, "trainyard/prod")
    assert taken(server.stored[PATH]["data"]).got.endswith(", with its state in s3://bucket/state")
    assert state_at("file:///state") == f"file:///state of {gethostname()}"


def test_the_same_stack_continues_after_a_killed_up(server: Any) -> None:
    create(server, "trainyard/prod")
    before = dict(server.stored[PATH]["data"])
    create(server, "trainyard/prod")
    assert server.stored[PATH]["data"] == before


def test_a_control_plane_that_has_no_namespaces_yet_is_awaited(server: Any) -> None:
    server.namespace_after.append(1)
    create(server, "trainyard/prod")
    assert server.stored[PATH]["data"]["owner"] == "trainyard/prod"


def test_only_its_owner_releases_the_cluster(server: Any) -> None:
    create(server, "trainyard/prod")
    ClusterClaim().delete(inputs(server, "trainyard/dev"), RecordedProgress())
    assert PATH in server.stored
    ClusterClaim().delete(inputs(server, "trainyard/prod"), RecordedProgress())
    ClusterClaim().delete(inputs(server, "trainyard/prod"), RecordedProgress())
    assert PATH not in server.stored
    with pytest.raises(ResourceNotFound):
        ClusterClaim().read(inputs(server, "trainyard/prod"), {}, RecordedProgress())


def test_a_renamed_stack_takes_its_claim_along_and_no_other(server: Any) -> None:
    create(server, "trainyard/prod")
    old, new = inputs(server, "trainyard/prod"), inputs(server, "trainyard/live")
    ClusterClaim().update(old, new, RecordedProgress())
    assert ClusterClaim().read(new, {}, RecordedProgress()).inputs["owner"] == "trainyard/live"
    with pytest.raises(TrainyardError, match="stack trainyard/live has it"):
        ClusterClaim().update(old, inputs(server, "trainyard/other"), RecordedProgress())


def test_wrong_inputs_are_named() -> None:
    failures = ClusterClaim().check({"owner": 1, "more": 1})
    assert {failure.property for failure in failures} == {"kubeconfig", "owner", "more"}
