"""`pulumi package add` of a git URL at a version, as a team with no clone uses the package."""

from __future__ import annotations

import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from engine.paths import Paths
from engine.progress import for_stream
from infra.artifacts import ROOT
from local.toolchain import Toolchain, load_versions
from tests.e2e.engines import engine_for
from tests.e2e.guide import blocks
from tests.e2e.rehearsed import plain_environment
from tests.e2e.test_templates import new_project
from trainyard.parts import PACKAGE_PARTS

pytestmark = [pytest.mark.engine, pytest.mark.soak, pytest.mark.timeout(900)]

VERSION = "0.1.0"
BACKEND = "/usr/lib/git-core/git-http-backend"
CERTIFICATE = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName="
PORT = 443
"""No other: the plugin's folder has the URL's host in its name, and a colon parts the entries of a path."""


def run(*words: str | Path, folder: Path, variables: dict[str, str]) -> str:
    """Run to the end, well; return what is shown."""
    command = [str(word) for word in words]
    ended = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-4000:]
    return ended.stdout + ended.stderr


class GitServer(BaseHTTPRequestHandler):
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
        self.send_response(int(headers.pop("Status", "200").split()[0]))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The last commit under a release's tag, at a git server with TLS: its URL, and whom to trust."""
    run(
        "git",
        "clone",
        "--quiet",
        "--bare",
        ROOT,
        "served/team/trainyard.git",
        folder=tmp_path,
        variables={**os.environ},
    )
    tag = ("git", "tag", "--force", f"v{VERSION}", "HEAD")
    run(*tag, folder=tmp_path / "served/team/trainyard.git", variables={**os.environ})
    files = ("-keyout", "key.pem", "-out", "certificate.pem")
    run(*f"{CERTIFICATE}DNS:localhost".split(), *files, folder=tmp_path, variables={**os.environ})
    known = Path(os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"))
    (tmp_path / "trusted.pem").write_text(known.read_text() + (tmp_path / "certificate.pem").read_text())
    server = ThreadingHTTPServer(
        ("127.0.0.1", PORT), type("Handler", (GitServer,), {"root": tmp_path / "served"})
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate.pem", tmp_path / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    trusted = dict.fromkeys(("SSL_CERT_FILE", "GIT_SSL_CAINFO"), str(tmp_path / "trusted.pem"))
    yield "https://localhost/team/trainyard.git", trusted
    server.shutdown()


def test_a_tag_of_a_git_url_gives_the_component_and_its_full_plan(
    served: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    """With what the engine makes of it: its own clone, and a virtual environment from the lock."""
    url, trusted = served
    project = new_project("team", tmp_path)
    program = yaml.safe_load((project / "Pulumi.yaml").read_text())
    del program["packages"]
    (project / "Pulumi.yaml").write_text(yaml.safe_dump(program, sort_keys=False))
    with engine_for(project, tmp_path) as engine:
        variables = {**engine.environment, **trusted}
        variables.pop("PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION")
        run("pulumi", "package", "add", f"{url}@{VERSION}", folder=project, variables=variables)
        plugins = Path(variables["PULUMI_HOME"]) / "plugins"
        [clone] = [each for each in plugins.iterdir() if each.is_dir() and "trainyard.git" in each.name]
        [packages] = (clone / ".venv").glob("lib/*/site-packages")
        assert not list(packages.glob("pulumi_aws")), "no SDK of a cloud that is not named"
        run("pulumi", "stack", "init", "dev", folder=project, variables=variables)
        shown = run("pulumi", "preview", "-s", "dev", folder=project, variables=variables)
    assert "trainyard:index:Cluster" in shown and "LocalQueue" in shown
    assert f"--policy-pack {clone}/policies" in shown.replace("\n", ""), "the pack of the same version"


def test_the_guides_commands_lead_to_a_plan_as_printed(tmp_path: Path) -> None:
    """All up to `pulumi up`, which is previewed; where the engine is signed in is the user's own affair."""
    [block] = blocks(ROOT / "docs/package.md")
    printed = block.text[: block.text.index("pulumi up")].replace("pulumi login --local\n", "")
    for folder in ("home", "backend"):
        (tmp_path / folder).mkdir()
    (tmp_path / "trainyard").symlink_to(ROOT)
    paths = Paths.from_environment({**os.environ, "TRAINYARD_STATE": str(tmp_path / "state")})
    Toolchain(paths, load_versions(), for_stream()).ensure(*PACKAGE_PARTS)
    variables = {
        **plain_environment(tmp_path),
        "PATH": f"{ROOT / '.trainyard/bin'}:{ROOT / '.venv/bin'}:{os.environ['PATH']}",
        "PULUMI_HOME": str(tmp_path / "home"),
        "PULUMI_BACKEND_URL": (tmp_path / "backend").as_uri(),
    }
    command = f"set -e\n{printed}\npulumi preview -s dev --policy-pack ../trainyard/policies"
    shown = run("bash", "-c", command, folder=tmp_path, variables=variables)
    assert "trainyard:index:Cluster" in shown and "trainyard@v" in shown
    assert "no policy judges" not in shown
