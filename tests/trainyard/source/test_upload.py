"""Upload of a code pack to a team's store: each digest once, and an incomplete transfer is detected."""

import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pytest

from infra.clients.kubernetes import Object, ProgramExit
from infra.clients.kubernetes.pods import PodContainer
from infra.common import names
from infra.errors import InputError, TrainyardError
from tests.processes import TIMEOUT_SECONDS
from tests.trainyard.jobs.fake_api import FakeApi
from tests.trainyard.jobs.lists import about
from trainyard.source import upload
from trainyard.source.pack import Pack, pack
from trainyard.source.upload import CodeStore


class LocalExec:
    """A fake of `PodConnection`: the program runs on this host."""

    def __init__(self, command: Sequence[str], breaks_after: int | None) -> None:
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self.process = subprocess.Popen([sys.executable, *command[1:]], **pipes)
        self.left, self.sent = breaks_after, 0
        self.open = True

    def update(self, timeout: float) -> None:
        assert timeout

    def is_open(self) -> bool:
        return self.open

    def read(self, channel: int) -> bytes:
        """Return a line of the output, as a frame would have it; the errors once the program has ended."""
        assert self.process.stdout and self.process.stderr
        if channel == 1:
            line: bytes = self.process.stdout.readline()
            self.open = bool(line)
            return line
        return self.process.stderr.read() if channel == 2 else b""

    def write(self, channel: int, data: bytes) -> None:
        assert channel == 0 and self.process.stdin
        self.sent += len(data)
        if self.left is not None and self.sent > self.left:
            self.process.stdin.close()
            self.left = 1 << 40
        elif self.left != 1 << 40:
            self.process.stdin.write(data)
            self.process.stdin.flush()

    def close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream
            stream.close()
        self.process.wait(TIMEOUT_SECONDS)


@pytest.fixture
def code(tmp_path: Path) -> Pack:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)\n" * 1000)
    (folder / "noise").write_bytes(bytes(range(256)) * 1000)
    return pack(folder, ["train.py", "noise"])


def pod(*conditions: tuple[str, str], **status: Any) -> Object:
    made = about("uploads-5d", labels={"app.kubernetes.io/name": "uploads"})
    found = [{"type": kind, "status": value} for kind, value in conditions]
    return {"metadata": made, "spec": {"nodeName": "system-0"}, "status": {"conditions": found, **status}}


READY = pod(("Ready", "True"))


class LocalRemote:
    """A fake of exec into pods: the commands run on this host."""

    made: ClassVar[list[LocalExec]] = []
    breaks_after: ClassVar[int | None] = None

    def __init__(self, _api: object) -> None:
        pass

    def run(self, to: PodContainer, command: Sequence[str]) -> ProgramExit:
        done = subprocess.run([sys.executable, *command[1:]], capture_output=True, text=True)
        return ProgramExit(done.returncode, done.stdout, done.stderr)

    def start(self, to: PodContainer, command: Sequence[str], **how: bool) -> LocalExec:
        assert (to.name, to.container, how) == ("uploads-5d", "uploads", {"stdin": True, "tty": False})
        self.made.append(LocalExec(command, self.breaks_after))
        return self.made[-1]


@pytest.fixture
def connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[LocalExec]:
    """Use a folder of this host as the store; return the list of connections that will be made."""
    made = LocalRemote.made = []
    monkeypatch.setattr(LocalRemote, "breaks_after", None)
    monkeypatch.setattr(names, "CODE_STORE", str(tmp_path / "store"))

    monkeypatch.setattr(upload, "Remote", LocalRemote)
    return made


def store(*pods: Object) -> CodeStore:
    api: Any = FakeApi({"/api/v1/namespaces/team-research/pods": pods})
    return CodeStore(api, "team-research")


def test_code_is_sent_once(code: Pack, connections: list[LocalExec]) -> None:
    progress: list[tuple[int, int]] = []
    assert not store(READY).has(code.digest)
    with closing(store(READY).started()) as program:
        assert not program.has(code.digest)
        program.take(code, lambda done, total: progress.append((done, total)))
    assert progress[-1][0] == progress[-1][1] > 0
    with closing(store(READY).started()) as program:
        assert program.has(code.digest)
    assert store(READY).has(code.digest)
    assert [each.sent > 100 for each in connections] == [False, True, False, False]
    assert all(each.process.returncode is not None for each in connections), "every program has ended"


def test_an_upload_that_breaks_off_is_reported_and_the_next_one_sends_it(
    code: Pack, connections: list[LocalExec], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalRemote, "breaks_after", 100)
    for is_whole in (False, True):
        with closing(store(READY).started()) as program:
            assert not program.has(code.digest)
            if is_whole:
                program.take(code)
            else:
                with pytest.raises(TrainyardError, match="the connection broke off: nothing was stored"):
                    program.take(code)
        monkeypatch.setattr(LocalRemote, "breaks_after", None)
    assert store(READY).has(code.digest) and connections


@pytest.mark.usefixtures("connections")
def test_an_image_lists_its_packages_and_another_ones_are_not_known() -> None:
    spec = {"containers": [{"image": "training:2"}]}
    running = store({**READY, "spec": spec})
    found = running.packages_of("training:2")
    assert found.python.startswith("3.") and "pytest" in found.packages
    with pytest.raises(InputError, match=r"own:1: not known\n  allowed: those of training:2"):
        running.packages_of("own:1")


@pytest.mark.usefixtures("connections")
def test_a_pod_that_does_not_start_has_a_reason(code: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "POD_SECONDS", 0.0)
    waiting = {"reason": "ErrImagePull", "message": "no such host"}
    starting = pod(("Ready", "False"), containerStatuses=[{"state": {"waiting": waiting}}])
    with pytest.raises(TrainyardError, match=r"uploads-5d is not ready: ErrImagePull: no such host"):
        store(starting).has(code.digest)
    with pytest.raises(TrainyardError, match="has no pod that receives code"):
        store().has(code.digest)
