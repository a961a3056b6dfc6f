"""A real S3 server (versitygw, as on the cluster), and a proxy before it that injects faults."""

import http.client
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest

from tests.processes import free_port, wait_for
from tests.servers import QuietHandler, serving

BUCKET = "checkpoints"
PROGRAM = Path(__file__).parents[2] / ".trainyard" / "bin" / "versitygw"
HANG_SECONDS = 60
"""Longer than any client's timeout."""
KEYS = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "tester-secret", "AWS_REGION": "us-east-1"}


@dataclass
class Proxy:
    """Records requests, and forwards each one unless its rule returns a fault."""

    port: int
    rule: Callable[[str, str, int], str] = lambda verb, path, number: ""
    """Verb, path, number of the request from 0 → "" to forward it, or a fault: an HTTP status, perhaps with
    S3's code ("403 RequestTimeTooSkewed"), "hang", "drop", or "mute": forward it and drop the response;
    "short", "altered": forward it and respond with other content, as a proxy with a bug."""
    requests: list[tuple[str, str]] = field(default_factory=list)
    faults: int = 0
    """Number of faults that the rule has returned."""
    conditional: list[bool] = field(default_factory=list)
    """For each request, whether it has If-None-Match."""

    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fault(self, verb: str, path: str, conditional: bool) -> str:
        """Record a request, and return the rule's fault for it, "" for none."""
        with self._lock:
            self.conditional.append(conditional)
            self.requests.append((verb, path))
            found = self.rule(verb, path, len(self.requests) - 1)
            self.faults += bool(found)
            return found

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def reset(self, rule: Callable[[str, str, int], str] = lambda verb, path, number: "") -> None:
        self.requests.clear()
        self.faults = 0
        self.conditional.clear()
        self.rule = rule


class _S3Handler(QuietHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    proxy: ClassVar[Proxy]
    upstream: ClassVar[int]

    def _pass_on(self) -> None:
        fault = self.proxy.fault(self.command, self.path, "If-None-Match" in self.headers)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if fault == "hang":
            time.sleep(HANG_SECONDS)
        if fault in {"hang", "drop"}:
            self._hang_up()
            return
        if fault and fault not in {"mute", "short", "altered"}:
            status, _, code = fault.partition(" ")
            self.respond(int(status), f"<Error><Code>{code}</Code></Error>".encode() if code else b"")
            return
        upstream = http.client.HTTPConnection("127.0.0.1", self.upstream)
        upstream.request(self.command, self.path, body, dict(self.headers.items()))
        answer = upstream.getresponse()
        content = answer.read()
        if fault == "mute":
            self._hang_up()
            return
        if fault in {"short", "altered"}:
            content = content[:-9] + (b"" if fault == "short" else b"?" * 9)
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in {"connection", "transfer-encoding", "date", "server", "content-length"}:
                self.send_header(name, value)
        length = answer.getheader("Content-Length", "0") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _hang_up(self) -> None:
        self.close_connection = True
        with suppress(OSError):  # a client that was killed has closed the connection itself
            self.connection.shutdown(socket.SHUT_RDWR)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on


@contextmanager
def s3_server(folder: Path) -> Iterator[Proxy]:
    """Serve a folder; clients need the variables of `environment(proxy)`."""
    (folder / BUCKET).mkdir(parents=True)
    port = free_port()
    keys = {"ROOT_ACCESS_KEY": KEYS["AWS_ACCESS_KEY_ID"], "ROOT_SECRET_KEY": KEYS["AWS_SECRET_ACCESS_KEY"]}
    command = [str(PROGRAM), "--quiet", "--port", f"127.0.0.1:{port}", "posix", str(folder)]
    server = subprocess.Popen(command, env=os.environ | keys, stdout=subprocess.DEVNULL)
    handler = type("Handler", (_S3Handler,), {"upstream": port})
    try:
        wait_for(lambda: server.poll() is not None or _answers(port), lambda: "the S3 server does not start")
        assert server.poll() is None, f"{command} has ended"
        with serving(handler) as front:
            handler.proxy = Proxy(front.server_port)  # type: ignore[attr-defined]
            yield handler.proxy  # type: ignore[attr-defined]
    finally:
        server.kill()
        server.wait()


def environment(proxy: Proxy) -> dict[str, str]:
    """Return the variables with which a client reaches the proxy."""
    return KEYS | {"AWS_ENDPOINT_URL": proxy.endpoint}


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with s3_server(tmp_path_factory.mktemp("s3") / "data") as proxy, pytest.MonkeyPatch.context() as patch:
        for name, value in environment(proxy).items():
            patch.setenv(name, value)
        yield proxy


def _answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
