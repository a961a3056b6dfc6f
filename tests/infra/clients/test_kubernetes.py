"""The one client of API servers: access by a kubeconfig, requests against a server that echoes them, and that
nothing else asks an API server.
"""

import ast
import json
import ssl
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import pytest

from engine.paths import REPOSITORY
from infra.clients.kubernetes import ApiError, ApiServer, ClusterAccess, NoAnswer
from infra.clients.kubernetes.access import proxy_for
from infra.clients.kubernetes.api import url
from tests.servers import QuietHandler, kubeconfig_of, serving
from tests.tables import table

OTHERS = table(__file__)["others"]
"""Modules that speak HTTP to something else than an API server."""
WAYS = {"kubernetes", "kubernetes_asyncio", "kr8s", "httpx", "urllib3", "requests", "websocket", "aiohttp"}


class EchoApiHandler(QuietHandler):
    """Answers with the requested path; refuses requests without a token."""

    asked: ClassVar[list[tuple[str, str, str, str]]]
    busy: ClassVar[int]
    """Number of requests that it still puts off."""

    def do_GET(self) -> None:
        known = self.headers.get("authorization") == "Bearer mei"
        answer = {"path": self.path} if known else {"message": "who are you?"}
        given = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        self.asked.append((self.command, self.path, self.headers.get("content-type", ""), given))
        status = 200 if known else 401
        if type(self).busy:
            type(self).busy -= 1
            status = 429
        self.respond(status, answer, **{"retry-after": "0"})

    do_POST = do_PATCH = do_DELETE = do_GET


@pytest.fixture
def host() -> Iterator[str]:
    EchoApiHandler.asked, EchoApiHandler.busy = [], 0
    with serving(EchoApiHandler) as server:
        yield f"http://127.0.0.1:{server.server_port}/"


def api(host: str, token: str = "mei") -> ApiServer:
    return ApiServer(ClusterAccess(kubeconfig_of(host, {"token": token} if token else {})))


def test_a_path_is_requested_with_the_users_token(host: str) -> None:
    found = api(host).get("/api/v1/pods", {"labelSelector": "a=b c", "limit": 5})
    assert found == {"path": "/api/v1/pods?labelSelector=a%3Db+c&limit=5"}
    assert api(host).read("/version") == b'{"path": "/version"}'


def test_each_change_has_the_form_that_the_api_server_takes(host: str) -> None:
    asked, pods = api(host), "/api/v1/namespaces/a/pods"
    asked.create(pods, {"kind": "Pod"}, {"dryRun": "All"})
    asked.apply(f"{pods}/p", {"kind": "Pod"})
    asked.merge(f"{pods}/p", {"metadata": {}})
    asked.merge_status(f"{pods}/p", {"phase": "Failed"})
    asked.delete(f"{pods}/p", {"propagationPolicy": "Foreground"}, {"preconditions": {"uid": "1"}})
    ours = "fieldManager=trainyard"
    assert EchoApiHandler.asked == [
        ("POST", f"{pods}?dryRun=All", "application/json", '{"kind": "Pod"}'),
        ("PATCH", f"{pods}/p?{ours}&force=true", "application/apply-patch+yaml", '{"kind": "Pod"}'),
        ("PATCH", f"{pods}/p?{ours}", "application/merge-patch+json", '{"metadata": {}}'),
        (
            "PATCH",
            f"{pods}/p/status",
            "application/strategic-merge-patch+json",
            '{"status": {"phase": "Failed"}}',
        ),
        (
            "DELETE",
            f"{pods}/p?propagationPolicy=Foreground",
            "application/json",
            '{"preconditions": {"uid": "1"}}',
        ),
    ]


def test_a_refusal_has_the_servers_message(host: str) -> None:
    with pytest.raises(ApiError) as refused:
        api(host, "").get("/api/v1/pods")
    assert (refused.value.status, refused.value.message) == (401, "who are you?")
    assert "sign in again" in refused.value.problems[0].fix


def test_a_read_that_is_put_off_is_repeated_and_a_creation_is_not(host: str) -> None:
    EchoApiHandler.busy = 2
    assert api(host).get("/x") == {"path": "/x"}
    EchoApiHandler.busy = 1
    with pytest.raises(ApiError, match="429"):
        api(host).create("/x", {})


def test_a_missing_answer_is_an_error_after_the_first_try() -> None:
    with pytest.raises(NoAnswer, match=r"127\.0\.0\.1:1"):
        api("http://127.0.0.1:1").read("/version", seconds=1)


def test_each_argument_of_a_command_is_a_separate_parameter() -> None:
    query = {"command": ["sh", "-c", "a & b"], "stdin": "true"}
    assert url("https://host", "/exec", query) == (
        "https://host/exec?command=sh&command=-c&command=a+%26+b&stdin=true"
    )


def test_a_token_file_is_read_again_and_users_act_as_others(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    access = ClusterAccess(
        kubeconfig_of("http://c", {"tokenFile": str(file), "as": "ops", "as-groups": ["a", "b"]})
    )
    acts = [("Impersonate-User", "ops"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b")]
    assert access.now()[1] == [("Authorization", "Bearer first"), *acts]
    file.write_text("second\n")
    assert access.now()[1] == [("Authorization", "Bearer second"), *acts]


@pytest.mark.parametrize(("expires", "calls"), [("2020-01-01T00:00:00Z", 4), ("2990-01-01T00:00:00Z", 1)])
def test_a_plugin_is_asked_again_once_it_has_expired(expires: str, calls: int, tmp_path: Path) -> None:
    status = json.dumps({"status": {"token": "t", "expirationTimestamp": expires}})
    script = f"echo >> {tmp_path}/asked; echo '{status}'"
    access = ClusterAccess(kubeconfig_of("http://c", {"exec": {"command": "sh", "args": ["-c", script]}}))
    assert [access.now()[1] for _ in range(3)] == [[("Authorization", "Bearer t")]] * 3
    assert len((tmp_path / "asked").read_text()) == calls


def test_a_plugin_that_fails_later_leaves_the_last_credential_to_the_api_server(tmp_path: Path) -> None:
    """It then refuses the credential, and the command says how the job is followed again."""
    status = json.dumps({"status": {"token": "t", "expirationTimestamp": "2020-01-01T00:00:00Z"}})
    script = f"mkdir {tmp_path}/asked && echo '{status}'"
    access = ClusterAccess(kubeconfig_of("http://c", {"exec": {"command": "sh", "args": ["-c", script]}}))
    assert access.now()[1] == [("Authorization", "Bearer t")]


@pytest.mark.parametrize("body", [b"<html>s3cret</html>", b"", b"[]", b'{"data": "s3cret"}'])
def test_of_an_answer_that_is_no_status_nothing_is_shown(body: bytes) -> None:
    assert ApiError.of(502, body).message == "Bad Gateway"


def test_a_refused_list_may_count_as_empty(host: str) -> None:
    assert api(host, "").items("/api/v1/pods", empty_on={401}) == []
    with pytest.raises(ApiError):
        api(host, "").items("/api/v1/pods", empty_on={403})


def test_threads_have_certificates_of_their_own_and_no_key_stays_on_the_disk(tmp_path: Path) -> None:
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=mei"),
            *("-keyout", tmp_path / "key", "-out", tmp_path / "crt"),
        ],
        check=True,
        capture_output=True,
    )
    user = {"client-certificate": str(tmp_path / "crt"), "client-key": str(tmp_path / "key")}
    keys = tmp_path / "keys"
    keys.mkdir()
    with ThreadPoolExecutor() as pool:
        made = list(pool.map(lambda _: ClusterAccess(kubeconfig_of("https://c", user), keys), range(8)))
    assert all(isinstance(each.now()[0], ssl.SSLContext) for each in made)
    assert not list(keys.iterdir())


@pytest.mark.parametrize(("host", "no_proxy", "proxied"), table(__file__)["proxies"])
def test_networks_without_a_proxy_are_known(
    host: str, no_proxy: str, proxied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", no_proxy)
    monkeypatch.delenv("no_proxy", raising=False)
    assert proxy_for(f"https://{host}:6443") == ("http://proxy:3128" if proxied else "")


def test_nothing_else_asks_an_api_server() -> None:
    found = set()
    for folder in ("infra", "trainyard", "engine", "local", "rehearsal", "policies"):
        for file in (REPOSITORY / folder).rglob("*.py"):
            imported = {
                name.split(".")[0]
                for node in ast.walk(ast.parse(file.read_text()))
                for name in (
                    [each.name for each in node.names]
                    if isinstance(node, ast.Import)
                    else [node.module or ""]
                    if isinstance(node, ast.ImportFrom) and not node.level
                    else []
                )
            }
            if imported & WAYS:
                found.add(str(file.relative_to(REPOSITORY)))
    ours = {name for name in found if name.startswith("infra/clients/kubernetes/")}
    assert ours == {"infra/clients/kubernetes/api.py", "infra/clients/kubernetes/pods.py"}
    assert found - ours == OTHERS.keys()
