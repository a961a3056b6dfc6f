"""HTTP servers of tests on loopback, and a kubeconfig for one."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, TypeVar

import yaml

Server = TypeVar("Server", bound=ThreadingHTTPServer)


class QuietHandler(BaseHTTPRequestHandler):
    """Logs nothing."""

    def body(self) -> Any:
        """Return what was sent as JSON or YAML; None without a body."""
        return yaml.safe_load(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def respond(self, status: int, body: object = b"", **headers: str) -> None:
        """Answer with bytes, or with anything else as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def serving(handler: Callable[..., BaseHTTPRequestHandler], port: int = 0) -> Iterator[ThreadingHTTPServer]:
    """Serve requests by a handler until the end of the block."""
    with served_by(ThreadingHTTPServer(("127.0.0.1", port), handler)) as server:
        yield server


@contextmanager
def served_by(server: Server) -> Iterator[Server]:
    """Let a server serve until the end of the block."""
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def kubeconfig_of(
    server: str,
    user: dict[str, Any] | None = None,
    *,
    context: str = "c",
    namespace: str = "",
    **cluster: Any,
) -> dict[str, Any]:
    """Return a kubeconfig with one context."""
    within = {"namespace": namespace} if namespace else {}
    return {
        "current-context": context,
        "contexts": [{"name": context, "context": {"cluster": "c", "user": "u", **within}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user or {}}],
    }
