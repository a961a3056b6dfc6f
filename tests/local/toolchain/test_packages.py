"""Installation of Debian packages: only missing ones, and without starting their services."""

from pathlib import Path

import pytest

from infra.errors import TrainyardError
from local.toolchain import packages
from local.toolchain.artifact import Action
from local.toolchain.packages import DebianPackages
from local.toolchain.process import ProcessRunner
from local.toolchain.versions import DebianPackage
from tests.engine.progress import RecordedProgress
from tests.local.toolchain.conftest import Workshop

OWN_POLICY = "#!/bin/sh\nexit 0\n"


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "policy-rc.d"
    monkeypatch.setattr(packages, "POLICY", file)
    return file


@pytest.fixture
def apt(workshop: Workshop, policy: Path) -> Path:
    """A fake apt-get that records its calls, and whether services may start at that moment."""
    log = workshop.machine / "apt.log"
    asks_policy = f"[ -x {policy} ] && {policy}; echo policy $? >> {log}"
    workshop.install("apt-get", f'echo "$@" >> {log}; {asks_policy}; [ ! -e {log}.fails ]')
    workshop.install("systemctl", f"echo systemctl $@ >> {log}")
    return log


def wanted(progress: RecordedProgress, services: tuple[str, ...] = (), **provides: str) -> DebianPackages:
    pinned = {
        name.replace("_", "-"): DebianPackage(provides=program, services=services)
        for name, program in provides.items()
    }
    return DebianPackages(pinned, runner=ProcessRunner(), progress=progress)


def test_installed_packages_are_retained(apt: Path, workshop: Workshop, progress: RecordedProgress) -> None:
    workshop.install("containerd", "true")
    debian = wanted(progress, containerd="containerd", shell="sh")
    assert debian.plan().action is Action.PRESENT
    debian.make(progress)
    assert not apt.exists()


def test_only_missing_packages_are_installed_and_reported(apt: Path, progress: RecordedProgress) -> None:
    debian = wanted(progress, shell="sh", etcd_server="no-such-etcd")
    assert debian.plan().why == "by apt-get: etcd-server"
    debian.make(progress)
    assert progress.lines[0] == "installing Debian packages: etcd-server"
    assert "install --no-install-recommends etcd-server" in apt.read_text()


def test_no_service_starts_while_packages_are_installed_nor_at_the_next_boot(
    apt: Path, policy: Path, progress: RecordedProgress
) -> None:
    wanted(progress, ("etcd", "etcd.socket"), shell="sh", etcd_server="no-such-etcd").make(progress)
    assert apt.read_text().count("policy 101") == 2
    assert not policy.exists()
    disabled = [line for line in apt.read_text().splitlines() if line.startswith("systemctl")]
    assert disabled == ["systemctl disable etcd", "systemctl disable etcd.socket"], "not those of the shell"


def test_services_may_start_after_a_failure(apt: Path, policy: Path, progress: RecordedProgress) -> None:
    apt.with_name("apt.log.fails").touch()
    with pytest.raises(TrainyardError):
        wanted(progress, etcd_server="no-such-etcd").make(progress)
    assert not policy.exists()


@pytest.mark.parametrize(("text", "left"), [(packages._POLICY_TEXT, None), (OWN_POLICY, OWN_POLICY)])
def test_only_the_policy_of_a_killed_run_is_removed(
    apt: Path, policy: Path, progress: RecordedProgress, text: str, left: str | None
) -> None:
    policy.write_text(text)
    wanted(progress, etcd_server="no-such-etcd").make(progress)
    assert (policy.read_text() if policy.exists() else None) == left


def test_a_package_can_be_detected_by_a_file(tmp_path: Path, progress: RecordedProgress) -> None:
    plugin = tmp_path / "bridge"
    assert wanted(progress, cni=str(plugin)).plan().action is Action.INSTALL
    plugin.touch()
    assert wanted(progress, cni=str(plugin)).plan().action is Action.PRESENT


def test_without_apt_the_programs_are_named(
    workshop: Workshop, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(workshop.machine))
    (problem,) = wanted(progress, etcd_server="no-such-etcd").problems()
    assert problem.allowed == "Debian or Ubuntu"
    assert "no-such-etcd" in problem.fix
