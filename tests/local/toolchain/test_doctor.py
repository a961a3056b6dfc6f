"""`trainyard doctor`: what exists, what will be done with the reason, and problems with the next step."""

import io
import os

import psutil
import pytest
from rich.console import Console

from infra.errors import ExitCode, Problem
from local.toolchain import Toolchain, doctor
from local.toolchain.doctor import Diagnosis, DoctorFinding, DoctorStatus, diagnose
from local.toolchain.releases import Releases
from tests.engine.progress import RecordedProgress
from tests.local.toolchain.conftest import Workshop, pinned


@pytest.fixture
def toolchain(workshop: Workshop, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch) -> Toolchain:
    monkeypatch.setattr(doctor, "_TRIALS", {})
    return Toolchain(workshop.paths, pinned(), progress, Releases(allowed=False))


def found(diagnosis: Diagnosis, name: str) -> DoctorFinding:
    return next(finding for finding in diagnosis.findings if finding.name == name)


def text_of(diagnosis: Diagnosis) -> str:
    stream = io.StringIO()
    diagnosis.render(Console(file=stream, width=160))
    return stream.getvalue()


def test_artifacts_are_ok_or_missing_with_the_reason(toolchain: Toolchain, workshop: Workshop) -> None:
    finding = found(diagnose(toolchain, ["binary/tool"]), "binary/tool")
    assert finding.state is DoctorStatus.TODO
    assert finding.detail == "build: from example.test/tool 1.2.3: its publisher releases no program"
    assert workshop.asked("build") == []
    assert not workshop.paths.cache.exists()
    toolchain.ensure("binary/tool")
    assert found(diagnose(toolchain, ["binary/tool"]), "binary/tool").state is DoctorStatus.OK


def test_brackets_are_printed_unchanged() -> None:
    fix = "uv tool install 'trainyard[aws] @ git+https://example.com/trainyard.git'"
    finding = DoctorFinding("packages", "aws", DoctorStatus.PROBLEM, "trainyard[aws] is missing", fix)
    shown = text_of(Diagnosis((finding,)))
    assert "trainyard[aws] is missing" in shown and f"aws: {fix}" in shown


def test_too_little_memory_is_a_problem(toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = psutil.virtual_memory()._replace(available=2**30)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    finding = found(diagnose(toolchain, []), "memory")
    assert (finding.state, finding.detail) == (DoctorStatus.PROBLEM, "1.0 GiB available")


def test_problems_of_other_checks_are_included(toolchain: Toolchain) -> None:
    stale = Problem(
        "cluster local", "etcd of a run that died", "no process of an earlier run", "trainyard down"
    )
    diagnosis = diagnose(toolchain, [], checks=[lambda: [stale]])
    finding = found(diagnosis, "cluster local")
    assert (finding.area, finding.state, finding.fix) == ("cluster", DoctorStatus.PROBLEM, "trainyard down")
    assert "cluster local: trainyard down" in text_of(diagnosis)
    assert diagnosis.exit_code is ExitCode.HOST


@pytest.mark.parametrize(
    ("seconds", "script", "detail"),
    [
        (20, "echo unknown filesystem >&2; exit 32", "unknown filesystem"),
        (0.01, "sleep 60", "no answer within 0.01 s"),
    ],
)
def test_a_kernel_without_feature_is_a_problem(
    toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch, seconds: float, script: str, detail: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(doctor, "_TRIALS", {"overlayfs": "no"})
    monkeypatch.setattr(doctor, "TRIAL_SECONDS", seconds)
    monkeypatch.setattr(doctor, "_namespaced", lambda _: ("sh", "-c", script))
    finding = found(diagnose(toolchain, []), "overlayfs")
    assert (finding.state, finding.detail) == (DoctorStatus.PROBLEM, detail)
