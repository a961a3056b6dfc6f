"""The resource `RotatedKubeconfig` on a fake API server: tokens are issued, stored and renewed."""

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest
import yaml

from engine.provider.resource import ResourceNotFound
from engine.provider.rotated_kubeconfig import RotatedKubeconfig, kubeconfig_with
from infra.errors import TrainyardError
from tests.engine.progress import RecordedProgress
from tests.servers import QuietHandler, kubeconfig_of, serving
from tests.tables import table

TOKENS = "/api/v1/namespaces/fleet-test/serviceaccounts/hub/token"
SECRET = "/api/v1/namespaces/kueue-system/secrets/fleet-test-far"


class FakeApiServers(QuietHandler):
    """A fake of both clusters' API servers: it issues tokens with its own lifetime, and stores Secrets."""

    secrets: ClassVar[dict[str, Any]]
    asked: ClassVar[list[tuple[str, str, Any]]]
    given: ClassVar[timedelta]
    refusal: ClassVar[str]

    def answer(self) -> None:
        body = self.body()
        path = self.path.partition("?")[0]
        self.asked.append((self.command, path, body))
        if self.refusal:
            self.respond(403, {"kind": "Status", "message": self.refusal})
        elif path == TOKENS:
            ends = (datetime.now(UTC) + self.given).strftime("%Y-%m-%dT%H:%M:%SZ")
            number = sum(asked == TOKENS for _, asked, _ in self.asked)
            self.respond(201, {"status": {"token": f"token-{number}", "expirationTimestamp": ends}})
        elif self.command == "PATCH":
            self.secrets[path] = body
            self.respond(200, body)
        elif path in self.secrets:
            self.respond(200, self.secrets[path] if self.command == "GET" else self.secrets.pop(path))
        else:
            self.respond(404, {"kind": "Status", "message": "not found"})

    do_GET = do_POST = do_PATCH = do_DELETE = answer


@pytest.fixture
def inputs() -> Iterator[dict[str, Any]]:
    FakeApiServers.secrets, FakeApiServers.asked, FakeApiServers.refusal = {}, [], ""
    FakeApiServers.given = timedelta(hours=24)
    with serving(FakeApiServers) as server:
        config = kubeconfig_of(f"http://127.0.0.1:{server.server_port}", {"token": "of-the-administrator"})
        yield {
            **dict.fromkeys(("issuer", "holder"), yaml.safe_dump(config)),
            "serviceAccount": {"namespace": "fleet-test", "name": "hub"},
            "secret": {"namespace": "kueue-system", "name": "fleet-test-far"},
            "lifetimeSeconds": 86400,
            "serial": 0,
        }


def stored() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(
        base64.b64decode(FakeApiServers.secrets[SECRET]["data"]["kubeconfig"])
    )
    return found


def test_a_token_is_requested_from_one_cluster_and_stored_in_the_other(inputs: dict[str, Any]) -> None:
    progress = RecordedProgress()
    outputs = RotatedKubeconfig().create(inputs, progress)
    [(_, _, request), _] = FakeApiServers.asked
    assert request["spec"] == {"expirationSeconds": 86400}
    assert stored()["users"] == [{"name": "hub", "user": {"token": "token-1"}}]
    assert outputs.keys() == {"expires", "renews"}
    assert "token" not in json.dumps(outputs)
    assert "token-1" not in str(vars(progress)), "nor do its messages have it"


def test_an_update_is_due_after_half_of_the_tokens_lifetime(inputs: dict[str, Any]) -> None:
    resource = RotatedKubeconfig()
    assert resource.due(resource.create(inputs, RecordedProgress())) == ""
    now = datetime.now(UTC)
    for minutes, due in ((5, ""), (-5, "expires")):
        assert resource.due({"renews": (now + timedelta(minutes=minutes)).isoformat()}) == due


def test_the_lifetime_is_that_of_the_issued_token(inputs: dict[str, Any]) -> None:
    FakeApiServers.given = timedelta(seconds=600)
    renews = datetime.fromisoformat(RotatedKubeconfig().create(inputs, RecordedProgress())["renews"])
    assert 290 < (renews - datetime.now(UTC)).total_seconds() < 310


def test_after_an_interrupted_create_an_update_is_due(inputs: dict[str, Any]) -> None:
    assert RotatedKubeconfig().due({}) == "expires"


def test_an_update_issues_another_token(inputs: dict[str, Any]) -> None:
    resource = RotatedKubeconfig()
    resource.create(inputs, RecordedProgress())
    resource.update(inputs, {**inputs, "serial": 1}, RecordedProgress())
    assert stored()["users"][0]["user"]["token"] == "token-2"


def test_a_deleted_secret_is_created_again(inputs: dict[str, Any]) -> None:
    resource = RotatedKubeconfig()
    outputs = resource.create(inputs, RecordedProgress())
    assert resource.read(inputs, outputs, RecordedProgress()).outputs == outputs
    FakeApiServers.secrets.clear()
    with pytest.raises(ResourceNotFound):
        resource.read(inputs, outputs, RecordedProgress())


def test_it_is_deleted_even_if_it_is_missing_already(inputs: dict[str, Any]) -> None:
    resource = RotatedKubeconfig()
    resource.create(inputs, RecordedProgress())
    resource.delete(inputs, RecordedProgress())
    assert FakeApiServers.secrets == {}
    resource.delete(inputs, RecordedProgress())


def test_a_refusal_is_reported_with_the_servers_message(inputs: dict[str, Any]) -> None:
    FakeApiServers.refusal = "serviceaccounts is forbidden"
    with pytest.raises(TrainyardError, match="serviceaccounts is forbidden"):
        RotatedKubeconfig().create(inputs, RecordedProgress())
    assert FakeApiServers.secrets == {}


def test_the_hub_gets_the_issuers_address_and_not_its_user() -> None:
    cluster = {"server": "https://10.0.0.1:6443", "certificate-authority-data": "Q0E="}
    user = {"exec": {"command": "aws"}, "client-key-data": "a2V5"}
    given = {
        "current-context": "one",
        "contexts": [
            {"name": "other", "context": {"cluster": "other", "user": "u"}},
            {"name": "one", "context": {"cluster": "one", "user": "u"}},
        ],
        "clusters": [{"name": "other", "cluster": {}}, {"name": "one", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    made = yaml.safe_load(kubeconfig_with("t", yaml.safe_dump(given)))
    assert made["clusters"][0]["cluster"] == cluster
    assert made["users"] == [{"name": "hub", "user": {"token": "t"}}]
    elsewhere = yaml.safe_load(kubeconfig_with("t", yaml.safe_dump(given), "https://worker.example.com"))
    assert elsewhere["clusters"][0]["cluster"] == {**cluster, "server": "https://worker.example.com"}


@pytest.mark.parametrize(("edit", "property_"), table(__file__, "wrong_inputs"))
def test_a_wrong_input_is_named(inputs: dict[str, Any], edit: dict[str, Any], property_: str) -> None:
    assert [each.property for each in RotatedKubeconfig().check({**inputs, **edit})] == [property_]
    assert RotatedKubeconfig().check(inputs) == []
