"""A fake API server on the loopback interface whose connections go silent: it stops answering and closes
nothing, as if a NAT or a proxy had dropped the connection.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from tests.servers import QuietHandler, served_by

Line = tuple[str, str]
"""Time and text of a line of a pod's log."""


class SilentServer(ThreadingHTTPServer):
    """Answers every request but the first ones, and sends a log as far as each connection is to get it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.num_unanswered = 0
        """Number of requests that still get no answer."""
        self.lines: Sequence[Line] = ()
        self.cuts: list[str] = []
        """Text of a log that each of the next connections gets, until it goes silent; then: all lines."""
        self.asked: list[str] = []
        """Paths of all requests, with their queries."""
        self.is_read = threading.Event()
        """Whether a connection has got the log to its end."""
        self.ends = threading.Event()
        """Ends the silence, once the test has ended."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(QuietHandler):
    protocol_version = "HTTP/1.1"
    server: SilentServer

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.server.num_unanswered:
            self.server.num_unanswered -= 1
            self._goes_silent()
        elif (parts := urlsplit(self.path)).path.endswith("/log"):
            self._send_log(parse_qs(parts.query).get("sinceTime", [""])[0])
        else:
            self.respond(200, {"items": [], "metadata": {}})

    def _send_log(self, since: str) -> None:
        """As the API server: lines of earlier whole seconds are omitted, and each follows its time."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if self.server.cuts:
            self._send(self.server.cuts.pop(0))
            self._goes_silent()
            return
        self._send("".join(f"{at} {text}\n" for at, text in self.server.lines if at[:19] >= since[:19]))
        self.wfile.write(b"0\r\n\r\n")
        self.server.is_read.set()

    def _send(self, text: str) -> None:
        if data := text.encode():  # an empty chunk would end the answer
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _goes_silent(self) -> None:
        self.server.ends.wait()
        self.close_connection = True


@contextmanager
def silent_server() -> Iterator[SilentServer]:
    """Serve while the block runs."""
    with served_by(SilentServer()) as server:
        try:
            yield server
        finally:
            server.ends.set()
