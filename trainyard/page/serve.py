"""Serves the page until the user stops it."""

import secrets
import socket
from contextlib import suppress

import uvicorn

from infra.errors import HostError, Problem
from trainyard.page.server import page_of
from trainyard.stack.session import Session

ADDRESS = "127.0.0.1"


def serve(session: Session, port: int) -> None:
    """Print the page's address, and answer until Ctrl-C.

    Raises:
        TrainyardError: the cluster cannot be reached, or the port is taken.
    """
    _ = session.api  # before an address is printed
    listening = _bound(port)
    token = secrets.token_urlsafe(16)
    session.console.print(f"http://{ADDRESS}:{port}/?token={token}", soft_wrap=True, highlight=False)
    session.console.print("[dim]it only reads, with your rights; Ctrl-C ends it[/]")
    app = page_of(session, token, port)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
    with suppress(KeyboardInterrupt):  # its usual end
        server.run(sockets=[listening])


def _bound(port: int) -> socket.socket:
    """Return a socket on the loopback; an earlier page's connections do not hold its port."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((ADDRESS, port))
    except OSError as error:
        listening.close()
        problem = Problem("--port", f"{port}: {error.strerror}", "a free port", "name another: --port 8322")
        raise HostError([problem]) from error
    return listening
