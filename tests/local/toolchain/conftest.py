import hashlib
import io
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.paths import REPOSITORY, Paths
from local.toolchain import search
from local.toolchain.versions import Versions
from tests.engine.progress import RecordedProgress
from tests.servers import QuietHandler, serving
from tests.tables import table


@dataclass
class ReleaseSite:
    """A fake of a publisher's release site."""

    address: str
    files: dict[str, bytes]
    asked: list[str]

    def publish(self, name: str, content: bytes, *, checksum: str | None = None) -> None:
        self.files[f"/{name}"] = content
        digest = checksum or hashlib.sha256(content).hexdigest()
        self.files[f"/{name}.sha256"] = f"{digest}  {name}\n".encode()


@pytest.fixture
def site() -> Iterator[ReleaseSite]:
    files: dict[str, bytes] = {}
    asked: list[str] = []

    class ReleaseSiteHandler(QuietHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            content = files.get(self.path)
            self.respond(200 if content is not None else 404, content or b"")

    with serving(ReleaseSiteHandler) as server:
        yield ReleaseSite(f"http://127.0.0.1:{server.server_port}", files, asked)


@pytest.fixture
def progress() -> RecordedProgress:
    return RecordedProgress()


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(cache=tmp_path / "cache", state=tmp_path / "state", repository=tmp_path / "clone")


@pytest.fixture(scope="session")
def versions() -> Versions:
    return Versions.load(REPOSITORY / "versions.yaml")


def tar_of(**files: bytes) -> bytes:
    """Return a gzipped archive with the files in a folder, as publishers make them."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"release/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@dataclass
class Workshop:
    """A clone with one pinned Go module, and a PATH with a fake `go`."""

    paths: Paths
    log: Path
    module: Path
    machine: Path
    """The only folder on PATH besides the host's."""

    def asked(self, verb: str) -> list[str]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line for line in lines if line.split()[0] == verb]

    def go_fails(self, output: str) -> None:
        Path(f"{self.log}.fails").write_text(output)

    def go_offline(self) -> None:
        Path(f"{self.log}.offline").touch()

    def go_works(self) -> None:
        Path(f"{self.log}.fails").unlink()

    def install(self, name: str, script: str) -> None:
        program = self.machine / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)


@pytest.fixture
def workshop(tmp_path: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    module, machine = tmp_path / "module", tmp_path / "machine"
    module.mkdir()
    machine.mkdir()
    for name, text in table(__file__, "clone").items():
        (paths.repository / name).parent.mkdir(parents=True, exist_ok=True)
        (paths.repository / name).write_text(text)
    monkeypatch.setattr(search, "SYSTEM_FOLDERS", ())
    monkeypatch.setenv("PATH", f"{machine}:/usr/bin:/bin")
    search.version_of.cache_clear()
    made = Workshop(paths, tmp_path / "go.log", module, machine)
    monkeypatch.setenv("FAKE_GO_LOG", str(made.log))
    monkeypatch.setenv("FAKE_GO_MODULE", str(module))
    shutil.copy(Path(__file__).with_name("go.sh"), machine / "go")
    return made


def pinned(**changes: object) -> Versions:
    """Return a small versions.yaml: one program, its chart and its image."""
    return Versions.model_validate({**table(__file__, "pinned"), **changes})
