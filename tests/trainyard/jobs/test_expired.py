"""Members' commands with a credential that expires: a fake API server refuses it with 401, as real ones do.

The credential is a token of an exec plugin, as clouds issue them. The job continues, and a command that ends
prints how to follow it again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from typer.testing import CliRunner, Result

from infra.common import names
from infra.errors import ExitCode, InputError, TrainyardError
from infra.stackfile.offer import PoolOffer
from tests.processes import TIMEOUT_SECONDS
from tests.servers import QuietHandler, kubeconfig_of, served_by
from tests.trainyard.jobs.lists import about, admitted, cluster_queue, local_queue, pod, workload
from trainyard.cli import app_of
from trainyard.jobs import logs, retrying_jobs
from trainyard.jobs.key import JobKey

KEY = JobKey("research", "tune")
NAMESPACED = f"namespaces/{KEY.namespace}"
KUEUE, TRAINER = "/apis/kueue.x-k8s.io/v1beta2", "/apis/trainer.kubeflow.org/v1alpha1"
OFFER = PoolOffer("simulated", 1, "tcp", "spot", 1.0, 1.0, "local", "")
PLUGIN = """#!/bin/sh
cd "$(dirname "$0")"
echo >>asked
printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{'
printf '"token":"token-%s","expirationTimestamp":"2020-01-01T00:00:00Z"}}' "$(wc -l <asked)"
"""
"""Each token is valid for one call: a client that uses one again is refused."""
ALWAYS = 10**6
REFUSED = {"kind": "Status", "message": "Unauthorized", "reason": "Unauthorized", "code": 401}
MISSING = {"kind": "Status", "message": "not found", "code": 404}


class ExpiringApiServer(ThreadingHTTPServer):
    """Serves the requests of a member's commands for as many calls as the credential lasts."""

    daemon_threads = True

    def __init__(self, asked: Path) -> None:
        super().__init__(("127.0.0.1", 0), ExpiringHandler)
        self.asked, self.lasts, self.calls = asked, ALWAYS, 0
        self.refuses = ""
        """Paths with this text are refused, whatever the token."""
        self.job: dict[str, Any] | None = None
        self.seen: set[str] = set()
        self.lock = threading.Lock()

    def knows(self, token: str, path: str) -> bool:
        """Whether the token has not been used before, and the path is not refused."""
        with self.lock:
            issued = len(self.asked.read_text()) if self.asked.exists() else 0
            is_new = token not in self.seen and token in {f"Bearer token-{n}" for n in range(issued + 1)}
            self.seen.add(token)
            self.calls += 1
            return is_new and self.calls <= self.lasts and not (self.refuses and self.refuses in path)

    def answer(self, path: str, query: dict[str, list[str]]) -> Any:
        """Return the object at a path, or None."""
        lists = {
            f"{KUEUE}/clusterqueues": [cluster_queue()],
            f"{KUEUE}/resourceflavors": [
                {"metadata": {"name": "spot", "annotations": {names.OFFER_ANNOTATION: OFFER.as_text()}}}
            ],
            f"{KUEUE}/workloadpriorityclasses": [{"metadata": {"name": "normal"}}],
            f"{KUEUE}/{NAMESPACED}/localqueues": [local_queue()],
            f"{KUEUE}/{NAMESPACED}/workloads": [workload("tune", *admitted())],
            f"{TRAINER}/clustertrainingruntimes": [
                {"metadata": {"name": "torch-tcp"}, "spec": {"template": {"spec": {"replicatedJobs": []}}}}
            ],
            f"/api/v1/{NAMESPACED}/pods": self.pods(query),
        }
        if path in lists:
            return {"items": lists[path], "metadata": {}, "kind": "List"}
        if path == "/version":
            return {"major": "1", "minor": "35"}
        return self.job if path == f"{TRAINER}/{NAMESPACED}/trainjobs/tune" else None

    @staticmethod
    def pods(query: dict[str, list[str]]) -> list[Any]:
        if "uploads" in query.get("labelSelector", [""])[0]:
            ready = [{"type": "Ready", "status": "True"}]
            return [{"metadata": about("uploads"), "status": {"conditions": ready}, "spec": {}}]
        return [pod("tune", number, f"spot-{number}") for number in range(2)]


class ExpiringHandler(QuietHandler):
    """Serves one request, or refuses it with 401 if its token is not valid."""

    protocol_version = "HTTP/1.1"
    server: ExpiringApiServer

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if not self.server.knows(self.headers.get("Authorization", ""), parts.path):
            self.respond(401, REFUSED)
        elif parts.path.endswith("/log"):
            self._stream()
        else:
            found = self.server.answer(parts.path, parse_qs(parts.query))
            self.respond(200 if found else 404, found or MISSING)

    def do_POST(self) -> None:
        given = self.body()
        if not self.server.knows(self.headers.get("Authorization", ""), self.path):
            self.respond(401, REFUSED)
            return
        self.server.job = given
        self.respond(201, given)

    def _stream(self) -> None:
        """Stream a log that does not end."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        line = b"2026-01-01T00:00:00Z waits\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.flush()
        time.sleep(5)
        self.close_connection = True


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ExpiringApiServer]:
    plugin = tmp_path / "plugin"
    plugin.write_text(PLUGIN)
    plugin.chmod(0o755)
    made = ExpiringApiServer(tmp_path / "asked")
    api = "client.authentication.k8s.io/v1"
    user = {"exec": {"apiVersion": api, "command": str(plugin), "interactiveMode": "Never"}}
    server = f"http://127.0.0.1:{made.server_port}"
    config = kubeconfig_of(server, user, context="trial", namespace=KEY.namespace)
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setenv("TRAINYARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(logs, "POLL_SECONDS", 0.1)
    monkeypatch.setattr(retrying_jobs, "RETRY_SECONDS", 0.1)
    with served_by(made):
        yield made


def run(*words: str) -> Result:
    """Run `trainyard run` in this process."""
    options = ("--gpus", "2", "--nodes", "2", "--name", "tune", "--context", "trial", "--stack", "unwritten")
    return CliRunner().invoke(app_of(["run"]), ["run", *options, *words])


def test_it_may_expire_before_each_call_until_the_job_is_submitted(server: ExpiringApiServer) -> None:
    for lasts in range(50):
        server.lasts, server.calls = lasts, 0
        done = run("--no-folder", "--detach", "--", "python", "/opt/train.py")
        if done.exit_code == 0 and done.exception is None:
            break
        assert isinstance(done.exception, TrainyardError), done.exception
        assert "401: " in str(done.exception) and "sign in again" in str(done.exception)
        assert server.job is None
        if lasts:  # the first call only checks the credential
            assert "no job was submitted: then run the same command again" in str(done.exception)
            assert done.exception.exit_code is ExitCode.FAILED
        else:
            assert isinstance(done.exception, InputError)
    assert lasts >= 6 and server.job is not None, "each call had a token of its own"


def test_it_may_expire_as_the_code_is_taken_to_the_store(
    server: ExpiringApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("print(1)\n")
    monkeypatch.chdir(code)
    server.refuses = "/exec"
    done = run("--", "python", "train.py")
    assert isinstance(done.exception, TrainyardError), done.exception
    assert "401: your credential has expired" in str(done.exception)
    assert "no job was submitted: then run the same command again" in str(done.exception)
    assert server.job is None


def test_it_may_expire_while_the_job_is_followed(server: ExpiringApiServer) -> None:
    ended: list[Result] = []
    words = ("--no-folder", "--", "python", "/opt/train.py")
    command = threading.Thread(target=lambda: ended.append(run(*words)), daemon=True)
    command.start()
    while server.calls < 40:  # so far the credential is renewed before each call
        assert command.is_alive(), ended[0].exception
        time.sleep(0.05)
    server.lasts = 0
    command.join(TIMEOUT_SECONDS)
    [done] = ended
    assert isinstance(done.exception, TrainyardError), done.exception
    assert done.exception.exit_code is ExitCode.FAILED
    assert "401: your credential has expired" in str(done.exception)
    assert "sign in again; tune continues; follow it again: trainyard logs -f tune" in str(done.exception)
    assert "node 0 | waits" in done.output and "node 1 | waits" in done.output
    assert server.job is not None, "the job goes on"
