"""The plain AWS program of the examples, run as a user runs it: by the command line."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from rehearsal.standin import StandIn
from tests.policies.engine import PACK, REPOSITORY, Engine

EXPECTED = (
    "security-public-buckets",
    "security-deletion-protection",
    "residency-region",
    "cost-tags",
    "security-instance-metadata",
    "security-disk-keys",
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    copy = tmp_path / "plain_aws"
    shutil.copytree(PACK / "examples" / "plain_aws", copy)
    settings = copy / "Pulumi.yaml"
    settings.write_text(settings.read_text().replace("../../../.venv", str(REPOSITORY / ".venv")))
    return copy


def pulumi(*arguments: str, project: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = ["pulumi", *arguments, "--stack", "dev", "--non-interactive", "--color", "never"]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


def test_the_example_is_refused_for_six_reasons_and_passes_when_they_are_gone(
    engine: Engine, project: Path
) -> None:
    (project / "state").mkdir()
    with StandIn(["aws"]) as stand_in:
        environment = {
            **os.environ,
            **engine.environment,
            **stand_in.environment(),
            "PULUMI_BACKEND_URL": (project / "state").as_uri(),
        }
        pulumi("stack", "init", project=project, environment=environment)
        refused = pulumi("preview", "--policy-pack", str(PACK), project=project, environment=environment)
        assert refused.returncode != 0
        assert all(f"{policy}  (aws:" in refused.stdout for policy in EXPECTED), refused.stdout
        assert refused.stdout.count("[mandatory]") == len(EXPECTED)
        pulumi("config", "set", "compliant", "true", project=project, environment=environment)
        passed = pulumi("preview", "--policy-pack", str(PACK), project=project, environment=environment)
        assert passed.returncode == 0, passed.stdout
        assert stand_in.created == []
