"""Paths of an API server, asked for as they are."""

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

from trainyard import plain


class Handler(BaseHTTPRequestHandler):
    """Answers with what it was asked; refuses whoever brings no token."""

    asked: ClassVar[list[tuple[str, str, str, str]]] = []

    def do_GET(self) -> None:
        known = self.headers.get("authorization") == "Bearer mei"
        output = {"path": self.path} if known else {"message": "who are you?"}
        given = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        self.asked.append((self.command, self.path, self.headers.get("content-type", ""), given))
        body = json.dumps(output).encode()
        self.send_response(200 if known else 401)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815 -- the server's names

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture
def host() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
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


def test_a_path_is_asked_for_with_the_users_token(host: str) -> None:
    found = plain.get(api(host, "mei"), "/api/v1/pods", {"labelSelector": "a=b c", "limit": 5})
    assert found == {"path": "/api/v1/pods?labelSelector=a%3Db+c&limit=5"}
    assert plain.read(api(host, "mei"), "/version") == b'{"path": "/version"}'


def test_custom_objects_are_asked_for_as_the_client_asks(host: str) -> None:
    """By the requests of the client's own module."""
    place = ("kueue.x-k8s.io", "v1beta2", "team-research", "workloads")
    body = {"spec": {"active": False}}
    asked = []
    for objects in (client.CustomObjectsApi(api(host, "mei")), plain.CustomObjects(api(host, "mei"))):
        Handler.asked.clear()
        objects.list_cluster_custom_object(*place[:2], "resourceflavors")
        objects.list_namespaced_custom_object(*place, limit=5)
        objects.get_namespaced_custom_object(*place, "tune")
        objects.create_namespaced_custom_object(*place, body)
        objects.patch_namespaced_custom_object(*place, "tune", body)
        only: Any = {"preconditions": {"uid": "1"}}
        objects.delete_namespaced_custom_object(*place, "tune", body=only, propagation_policy="Foreground")
        asked.append([(verb, path, json.loads(given or "null")) for verb, path, _, given in Handler.asked])
        kinds = {verb: kind for verb, _, kind, _ in Handler.asked}
        assert kinds["PATCH"] == "application/merge-patch+json"
    assert asked[0] == asked[1]


def test_a_refusal_keeps_what_the_server_reported(host: str) -> None:
    with pytest.raises(ApiException) as refused:
        plain.get(api(host), "/api/v1/pods")
    assert (refused.value.status, json.loads(refused.value.body or "")["message"]) == (401, "who are you?")


def test_a_missing_answer_is_an_error_after_the_first_try() -> None:
    with pytest.raises(HTTPError):
        plain.read(api("http://127.0.0.1:1"), "/version", seconds=1)


def test_each_word_of_a_command_is_given_by_itself() -> None:
    words = {"command": ["sh", "-c", "a & b"], "stdin": "true"}
    assert plain.url(api("https://there/"), "/exec", words) == (
        "https://there/exec?command=sh&command=-c&command=a+%26+b&stdin=true"
    )
