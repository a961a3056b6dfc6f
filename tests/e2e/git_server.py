"""A git server with TLS on loopback that serves a release of this repository, as an organisation would."""

import os
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from http.server import ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from engine.provider.service import VERSION
from infra.common.artifacts import ROOT
from tests import versions
from tests.servers import QuietHandler, served_by

PRINTED = "https://github.com/your-organisation/trainyard"
"""Placeholder in pages and templates for an organisation's copy."""
ADDRESS = "https://localhost/team/trainyard"
BACKEND = "/usr/lib/git-core/git-http-backend"
CERTIFICATE = (
    "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext "
    "subjectAltName=DNS:localhost -keyout key.pem -out certificate.pem"
)
PORT = 443
"""The default, since the plugin's folder has the URL's host in its name, and PATH cannot contain a colon."""


def run(*words: str | Path, folder: Path, variables: dict[str, str] | None = None) -> str:
    """Run a command, which must succeed; return its output."""
    command = [str(word) for word in words]
    ended = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-4000:]
    return ended.stdout + ended.stderr


class GitRequests(QuietHandler):
    """Hands each request to git's own server (git-http-backend(1))."""

    root: Path

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        variables = {
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": url.path,
            "QUERY_STRING": url.query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        done = subprocess.run([BACKEND], env=variables, input=body, capture_output=True, check=True)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.respond(int(headers.pop("Status", "200").split()[0]), content, **headers)

    do_POST = do_GET


@dataclass(frozen=True)
class Release:
    """A published copy of the repository."""

    address: str
    """URL without `.git`, in place of PRINTED."""
    trusted: dict[str, str]
    """Variables with which Go's and git's clients trust the server."""


@contextmanager
def published(folder: Path, *later: str) -> Iterator[Release]:
    """Serve the last commit under a release's tag, with the server's address in its templates.

    `later`: versions of further releases, each with a tag and no other change.
    """
    copy = folder / "copy"
    run("git", "clone", "--quiet", ROOT, copy, folder=folder)
    for file in [*copy.glob("templates/**/*.yaml"), *copy.glob("templates/**/*.md")]:
        file.write_text(file.read_text().replace(PRINTED, ADDRESS))
    _release(copy, VERSION)
    for version in later:
        versions.write(version, date.today(), copy)
        _release(copy, version)
    run("git", "clone", "--quiet", "--bare", copy, "served/team/trainyard.git", folder=folder)
    run(*CERTIFICATE.split(), folder=folder)
    known = Path(os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"))
    trusted = folder / "trusted.pem"
    trusted.write_text(known.read_text() + (folder / "certificate.pem").read_text())
    handler = type("Handler", (GitRequests,), {"root": folder / "served"})
    server = ThreadingHTTPServer(("127.0.0.1", PORT), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with served_by(server):
        yield Release(ADDRESS, dict.fromkeys(("SSL_CERT_FILE", "GIT_SSL_CAINFO"), str(trusted)))


def _release(copy: Path, version: str) -> None:
    author = ("-c", "user.name=team", "-c", "user.email=team@example.com")
    run("git", *author, "commit", "--quiet", "--all", "--message", f"Release {version}", folder=copy)
    run("git", "tag", "--force", f"v{version}", folder=copy)
