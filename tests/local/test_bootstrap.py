import re
import shutil
import subprocess
from pathlib import Path

import pytest

from engine.paths import REPOSITORY
from tests.mac.host import environment


class Clone:
    """A clone with the bootstrap script, and a PATH with a fake Python."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log, self.machine = folder / "clone", folder / "log", folder / "machine"
        for name in ("local", "requirements", "training"):
            (self.folder / name).mkdir(parents=True)
        self.machine.mkdir()
        self.fake: dict[str, str] = {}
        for name in ("bootstrap.sh", "locked.py"):
            shutil.copy(REPOSITORY / "local" / name, self.folder / "local")
        for name in ("pyproject.toml", "training/pyproject.toml", "requirements/host.txt"):
            (self.folder / name).write_text(name)

    def install(self, name: str, script: str) -> None:
        (self.machine / name).write_text(script)
        (self.machine / name).chmod(0o755)

    def install_python(self, *, old: bool = False, bare: bool = False) -> None:
        self.install("python3", Path(__file__).with_name("python.sh").read_text())
        self.fake = {"FAKE_LOG": str(self.log), "FAKE_OLD": str(int(old)), "FAKE_BARE": str(int(bare))}

    def bootstrap(self, name: str) -> subprocess.CompletedProcess[str]:
        programs = environment(self.folder.parent)["PATH"]  # without flock
        path = {"PATH": f"{self.machine}:{programs}", "PYTHON": str(self.machine / "python3")}
        command = [str(self.folder / "local/bootstrap.sh"), name]
        return subprocess.run(command, env=path | self.fake, capture_output=True, text=True)

    def installed(self) -> list[str]:
        """Return the extra of each installation."""
        lines = self.log.read_text().splitlines()
        return re.findall(r"--extra ui --extra (\w+) ", "\n".join(lines))


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def test_a_new_clone_gets_its_environment_by_hash(clone: Clone) -> None:
    clone.install_python()
    done = clone.bootstrap("local")
    assert done.returncode == 0, done.stderr
    assert clone.installed() == ["local"]
    assert clone.log.read_text().count("--require-hashes") == 2


def test_a_second_run_installs_nothing_and_uses_the_developers_environment(clone: Clone) -> None:
    clone.install_python()
    for name in ("dev", "dev", "local"):
        assert clone.bootstrap(name).returncode == 0
    assert clone.installed() == ["dev"]


@pytest.mark.parametrize("file", ["requirements/host.txt", "pyproject.toml", ".venv/.stamp-local"])
def test_a_changed_lock_is_installed_again(clone: Clone, file: str) -> None:
    clone.install_python()
    clone.bootstrap("local")
    (clone.folder / file).write_text("changed")
    clone.bootstrap("local")
    assert len(clone.installed()) == 2


def test_an_old_python_is_refused_with_the_next_step(clone: Clone) -> None:
    clone.install_python(old=True)
    refused = clone.bootstrap("local")
    assert refused.returncode == 3
    assert "got:     Python 3.9.2" in refused.stderr
    assert "fix:     install one and name it: make PYTHON=/path/to/python3" in refused.stderr
    assert not (clone.folder / ".venv").exists()


def test_a_python_that_is_missing_is_named(clone: Clone) -> None:
    refused = clone.bootstrap("local")
    assert refused.returncode == 3
    assert "apt-get install python3" in refused.stderr


def test_without_root_the_missing_package_is_named(clone: Clone) -> None:
    clone.install_python(bare=True)
    clone.install("id", "#!/bin/sh\necho 1000\n")
    refused = clone.bootstrap("local")
    assert refused.returncode == 3
    assert "fix:     apt-get install python3.11-venv" in refused.stderr


def test_with_root_the_missing_package_is_installed_and_reported(clone: Clone) -> None:
    clone.install_python(bare=True)
    clone.install("id", "#!/bin/sh\necho 0\n")
    clone.install("apt-get", f'#!/bin/sh\necho apt-get "$@" >> {clone.log}\n')
    done = clone.bootstrap("local")
    assert done.returncode == 0, done.stderr
    assert "installing the Debian package python3.11-venv" in done.stdout
    assert "apt-get -qq -y install --no-install-recommends python3.11-venv" in clone.log.read_text()
