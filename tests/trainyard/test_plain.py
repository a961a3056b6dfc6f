"""Plain requests to an API server, which equal those of Kubernetes' client."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from infra.clients import plain


class EchoApiHandler(BaseHTTPRequestHandler):
    """Answers with the requested path; refuses requests without a token."""

    asked: ClassVar[list[tuple[str, str, str, str]]] = []

    def do_GET(self) -> None:
        known = self.headers.get("authorization") == "Bearer mei"
        answer = {"path": self.path} if known else {"message": "who are you?"}
        given = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        self.asked.append((self.command, self.path, self.headers.get("content-type", ""), given))
        body = json.dumps(answer).encode()
        self.send_response(200 if known else 401)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815 -- the server's names

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def host() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), EchoApiHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def api(host: str, token: str = "") -> client.ApiClient:
    settings: Any = client.Configuration()
    settings.host = host
    if token:
        settings.api_key = {"authorization": f"Bearer {token}"}
    return client.ApiClient(settings)


def test_a_path_is_requested_with_the_users_token(host: str) -> None:
    found = plain.get(api(host, "mei"), "/api/v1/pods", {"labelSelector": "a=b c", "limit": 5})
    assert found == {"path": "/api/v1/pods?labelSelector=a%3Db+c&limit=5"}
    assert plain.read(api(host, "mei"), "/version") == b'{"path": "/version"}'


def test_requests_for_custom_objects_equal_those_of_the_client(host: str) -> None:
    workloads = ("kueue.x-k8s.io", "v1beta2", "team-research", "workloads")
    body = {"spec": {"active": False}}
    asked = []
    for objects in (client.CustomObjectsApi(api(host, "mei")), plain.CustomObjects(api(host, "mei"))):
        EchoApiHandler.asked.clear()
        objects.list_cluster_custom_object(*workloads[:2], "resourceflavors")
        objects.list_namespaced_custom_object(*workloads, limit=5)
        objects.get_namespaced_custom_object(*workloads, "tune")
        objects.create_namespaced_custom_object(*workloads, body)
        objects.patch_namespaced_custom_object(*workloads, "tune", body)
        only: Any = {"preconditions": {"uid": "1"}}
        objects.delete_namespaced_custom_object(
            *workloads, "tune", body=only, propagation_policy="Foreground"
        )
        requests = EchoApiHandler.asked
        asked.append([(verb, path, json.loads(given or "null")) for verb, path, _, given in requests])
        kinds = {verb: kind for verb, _, kind, _ in requests}
        assert kinds["PATCH"] == "application/merge-patch+json"
    assert asked[0] == asked[1]


def test_a_refusal_has_the_servers_message(host: str) -> None:
    with pytest.raises(ApiException) as refused:
        plain.get(api(host), "/api/v1/pods")
    assert (refused.value.status, json.loads(refused.value.body or "")["message"]) == (401, "who are you?")


def test_a_missing_answer_is_an_error_after_the_first_try() -> None:
    with pytest.raises(HTTPError):
        plain.read(api("http://127.0.0.1:1"), "/version", seconds=1)


def test_each_argument_of_a_command_is_a_separate_parameter() -> None:
    query = {"command": ["sh", "-c", "a & b"], "stdin": "true"}
    assert plain.url(api("https://host/"), "/exec", query) == (
        "https://host/exec?command=sh&command=-c&command=a+%26+b&stdin=true"
    )
