"""The packages of an extra: installed from the lock, or named with the command that installs them."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from packaging.utils import canonicalize_name

from engine.paths import REPOSITORY, Paths
from engine.progress import Progress
from infra.common.target_registry import TARGETS, target_of
from infra.errors import ExitCode, HostError
from local.locked import locked_versions
from local.toolchain.doctor import DoctorStatus
from tests.engine.progress import RecordedProgress
from trainyard.stack import doctor, packages
from trainyard.stack.packages import Packages
from trainyard.stack.session import Session

MISSING = metadata.PackageNotFoundError


class Installed:
    """A fake of the installed packages that the module under test finds."""

    def __init__(self, versions: dict[str, str]) -> None:
        self.versions = versions

    def version(self, name: str) -> str:
        if name not in self.versions:
            raise MISSING(name)
        return self.versions[name]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Installed:
    """An environment in which no SDK is installed, but the engine's packages are."""
    found = Installed({each.name: metadata.version(each.name) for each in packages._required("local")})
    found.versions["boto3"] = "1.44.5"
    monkeypatch.setattr(metadata, "version", found.version)
    return found


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake clone, whose environment the module under test takes for this Python's."""
    (tmp_path / "requirements").mkdir()
    (tmp_path / "local").mkdir()
    (tmp_path / "requirements" / "host.txt").write_text(
        "moto==5.2.0 \\\n    --hash=sha256:0\npulumi-aws==7.9.0 \\\n    --hash=sha256:0\n"
    )
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    return tmp_path


def of(repository: Path, extra: str = "aws") -> Packages:
    return Packages(extra, Paths(repository / "cache", repository / "state", repository))


def script(clone: Path, text: str) -> None:
    file = clone / "local" / "bootstrap.sh"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def test_each_target_names_an_extra_of_the_project_that_is_locked() -> None:
    locked = locked_versions(REPOSITORY / "requirements/host.txt")
    for kind in TARGETS:
        names = {canonicalize_name(each.name) for each in packages._required(target_of(kind).packages)}
        assert {"pulumi", "pulumi-kubernetes"} <= names <= locked.keys()


def test_an_import_that_an_extra_would_satisfy_names_it(installed: Installed, tmp_path: Path) -> None:
    paths = of(tmp_path).paths
    found = {
        module: Packages.providing(module, paths)
        for module in ("pulumi.runtime", "grpc", "matplotlib", "boto3", "botocore.exceptions", "colorsys")
    }
    extras = [each and each.extra for each in found.values()]
    assert extras == ["local", "local", "ui", "aws", "aws", None]


def test_a_package_of_a_fitting_version_is_not_changed(installed: Installed, tmp_path: Path) -> None:
    installed.versions |= {"pulumi-aws": "7.1.0", "moto": "5.2.1"}
    assert of(tmp_path).missing() == []
    installed.versions["pulumi-aws"] = "6.9.0"
    assert [each.name for each in of(tmp_path).missing()] == ["pulumi-aws"]


def test_missing_packages_are_installed_and_reported(installed: Installed, clone: Path) -> None:
    script(clone, f"cd {clone}; echo Downloading pulumi-aws; touch installed-$1")
    recorded = RecordedProgress()

    class Installing(Packages):
        def _install(self, progress: Progress) -> None:
            super()._install(progress)
            assert (clone / "installed-aws").exists()
            installed.versions |= {"pulumi-aws": "7.9.0", "moto": "5.2.0"}

    Installing("aws", of(clone).paths).ensure(recorded)
    assert recorded.status == ["Downloading pulumi-aws"]
    assert recorded.lines[0] == ("pulumi-aws, moto: not installed; installing from requirements/host.txt")


def test_a_version_other_than_the_locks_is_missing(installed: Installed, clone: Path) -> None:
    script(clone, "exit 0")
    installed.versions |= {"pulumi-aws": "7.1.0", "moto": "5.2.0"}
    assert [str(each) for each in of(clone).missing()] == ["pulumi-aws==7.9.0"]


def test_a_failed_installation_is_reported_with_its_output_and_the_command(
    installed: Installed, clone: Path
) -> None:
    script(clone, "echo no route to the index >&2; exit 3")
    with pytest.raises(HostError, match="no route to the index") as failed:
        of(clone).ensure(RecordedProgress())
    assert failed.value.exit_code == ExitCode.HOST
    assert failed.value.problems[0].fix == f"{clone}/local/bootstrap.sh aws"


@pytest.mark.parametrize("has_lock", [True, False])
def test_outside_of_the_clones_environment_one_command_is_named(
    installed: Installed, clone: Path, monkeypatch: pytest.MonkeyPatch, has_lock: bool
) -> None:
    script(clone, "exit 0")
    monkeypatch.setattr(sys, "prefix", "/opt/elsewhere")
    if not has_lock:
        (clone / "requirements" / "host.txt").unlink()
    with pytest.raises(HostError) as refused:
        of(clone).ensure(RecordedProgress())
    fix = refused.value.problems[0].fix
    pins = f"--require-hashes --constraints {clone}/requirements/host.txt pulumi-aws==7.9.0 moto==5.2.0"
    what = pins if has_lock else "'moto>=5.2'"
    assert fix.startswith(f"uv pip install --python {sys.executable} ")
    assert f"{what}; if that would change packages of yours, `uv tool install` or" in fix
    assert refused.value.exit_code == ExitCode.HOST


GIT = {"url": "https://example.com/trainyard.git", "vcs_info": {"vcs": "git", "commit_id": "0a1b"}}
TAGGED = {**GIT, "vcs_info": {"vcs": "git", "requested_revision": "v0.1.0", "commit_id": "0a1b"}}
WHEEL = {"url": "file:///trainyard-0.1.0-py3-none-any.whl", "archive_info": {}}


@pytest.mark.parametrize(
    ("direct_url", "origin"),
    [
        (TAGGED, "git+https://example.com/trainyard.git@v0.1.0"),
        (GIT, "git+https://example.com/trainyard.git@0a1b"),
        (WHEEL, "file:///trainyard-0.1.0-py3-none-any.whl"),
    ],
)
def test_a_tool_is_reinstalled_from_its_source_with_its_extras(
    installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direct_url: object, origin: str
) -> None:
    """PEP 610 has the forms of sources; on PyPI the name belongs to another project."""
    (tmp_path / "uv-receipt.toml").touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    ours, texts = metadata.distribution("trainyard"), {"direct_url.json": json.dumps(direct_url)}
    read = ours.read_text
    monkeypatch.setattr(ours, "read_text", lambda name: texts.get(name) or read(name))
    monkeypatch.setattr(metadata, "distribution", lambda _name: ours)
    assert of(tmp_path).command == f"uv tool install 'trainyard[aws,local] @ {origin}'"
    installed.versions["pulumi-coreweave"] = "1.0.1"
    assert of(tmp_path).command == f"uv tool install 'trainyard[aws,coreweave,local] @ {origin}'"


def test_nothing_is_installed_into_an_environment_without_pip(
    installed: Installed, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(clone, "exit 0")
    monkeypatch.setattr(packages, "find_spec", lambda _name: None)
    assert not of(clone).is_installable


@pytest.mark.parametrize(
    ("found", "has_script", "state", "detail"),
    [
        ({}, True, DoctorStatus.TODO, "install pulumi-aws, moto from requirements/host.txt"),
        ({}, False, DoctorStatus.PROBLEM, "not installed"),
        ({"pulumi-aws": "7.9.0", "moto": "5.2.0"}, True, DoctorStatus.OK, "installed"),
    ],
)
def test_the_doctor_names_what_installs_them(
    installed: Installed,
    clone: Path,
    found: dict[str, str],
    has_script: bool,
    state: DoctorStatus,
    detail: str,
) -> None:
    if has_script:
        script(clone, "exit 0")
    installed.versions |= found
    session = cast(Session, SimpleNamespace(packages=of(clone)))
    (finding,) = doctor._packages(session)
    assert finding.state is state
    assert detail in finding.detail
    assert bool(finding.fix) is (state is DoctorStatus.PROBLEM)
