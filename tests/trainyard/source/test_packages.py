"""Packages beyond a job's image: resolved by uv from a folder of wheels, sent and imported as in a pod."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from infra.errors import InputError
from infra.platform.programs import program
from tests.tables import table
from tests.wheels import wheel
from trainyard.source.packages import ImagePackages, Installed, install

TORCH = ["2.15.0+cu132", "Metadata-Version: 2.1\nName: torch\nVersion: 2.15.0+cu132\n"]
IMAGE = ImagePackages("3.13.5", "x86_64", "2.41", {"torch": TORCH})


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "wheels"
    folder.mkdir()
    wheel(folder, "alpha", "beta")
    wheel(folder, "beta", "torch>=2")
    wheel(folder, "gamma", "torch<2")
    wheel(folder, "delta", tag="cp313-cp313-win_amd64")
    return folder


def asked(text: str, file: str = "requirements.txt") -> Installed:
    Path(file).write_text(text)
    return install(IMAGE, [file, "wheels"])


LOCK = """
packages = [{name = "alpha", version = "1.0"}, {name = "gone", version = "1", marker = "os_name == 'nt'"}]
"""


@pytest.mark.usefixtures("wheels")
def test_only_what_the_image_lacks_is_sent_in_the_same_bytes() -> None:
    found = [asked("alpha\n"), asked("torch==2.15.0\nalpha"), asked(LOCK, "pylock.toml")]
    assert {each.names for each in found} == {("alpha 1.0", "beta 1.0")}
    assert len({each.pack and each.pack.digest for each in found} - {None}) == 1
    assert asked("torch>=2.1\n") == Installed((), None)


@pytest.mark.usefixtures("wheels")
@pytest.mark.parametrize(("text", "messages"), table(__file__)["refused"])
def test_what_does_not_fit_the_image_is_refused_by_name(text: str, messages: list[str]) -> None:
    with pytest.raises(InputError) as refused:
        asked(text)
    assert [each for each in messages if each not in str(refused.value)] == []


@pytest.mark.usefixtures("wheels")
def test_a_file_that_cannot_be_read_and_an_index_that_is_out_of_reach_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("empty").mkdir()
    for name, text in {"pylock.toml": "[[packages", "uv.lock": "version = 1\n", "r.txt": "alpha\n"}.items():
        Path(name).write_text(text)
    for given in ("absent.txt", "empty", "pylock.toml", "uv.lock"):
        with pytest.raises(InputError, match=f"--with {given}"):
            install(IMAGE, [given])
    for name, value in (("DEFAULT_INDEX", "http://127.0.0.1:9"), ("HTTP_RETRIES", "0"), ("NO_CACHE", "1")):
        monkeypatch.setenv(f"UV_{name}", value)
    with pytest.raises(InputError, match=r"no package index answers: .*\n.*\n.*--with FOLDER"):
        install(IMAGE, ["r.txt"])


def test_a_job_imports_and_starts_what_was_stored_once(wheels: Path) -> None:
    (wheels / "gamma-1.0-py3-none-any.whl").unlink()
    (wheels / "delta-1.0-cp313-cp313-win_amd64.whl").unlink()
    wheel(wheels, "beta", "packaging")
    listed = subprocess.run(
        [sys.executable, "-c", program("list_packages.py")], capture_output=True, text=True
    )
    found = install(ImagePackages.read(listed.stdout), ["wheels"])
    assert found.names == ("alpha 1.0", "beta 1.0") and found.pack
    sent = found.pack.compressed().read()
    receive = [sys.executable, "-ISc", program("receive_code.py"), "store", "unpacked"]
    for given, answer in ((b"%d\n" % len(sent) + sent, b"send\nstored\n"), (b"", b"stored\n")):
        text = f"{found.pack.digest}\n".encode() + given
        assert subprocess.run(receive, input=text, capture_output=True).stdout == answer
    [stored] = Path("store").absolute().iterdir()
    assert f"sha256:{stored.name}" == found.pack.digest
    assert {each.stat().st_mode & 0o222 for each in (stored, *stored.rglob("*"))} == {0}
    assert list(stored.glob("__pycache__/alpha.*.pyc"))
    command = ["/bin/sh", "-c", program("python_path.sh"), "python_path", "alpha"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    variables = {"TRAINYARD_PACKAGES": f"{stored}", "TRAINYARD_PYTHONPATH": f"{stored}", "PATH": path}
    assert subprocess.run(command, env=variables, capture_output=True, text=True).stdout == "alpha runs\n"
    variables["TRAINYARD_PACKAGES"] += "0"
    ended = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert (ended.returncode, "not in the team's store" in ended.stderr) == (2, True)
