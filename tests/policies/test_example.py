"""The plain programs of the examples with the policy pack, run by the command line as users do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rehearsal.fake_provider import FakeProvider
from tests.policies.engine import PACK, REPOSITORY, PolicyEngine
from tests.tables import table

pytestmark = pytest.mark.engine

EXPECTED = table(__file__)


def pulumi(*arguments: str, project: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = ["pulumi", *arguments, "--stack", "dev", "--non-interactive", "--color", "never"]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("cloud", EXPECTED)
def test_a_plain_program_is_refused_for_all_reasons_and_passes_without_them(
    cloud: str, engine: PolicyEngine, tmp_path: Path
) -> None:
    project = tmp_path / f"plain_{cloud}"
    shutil.copytree(PACK / "examples" / project.name, project)
    settings = project / "Pulumi.yaml"
    settings.write_text(settings.read_text().replace("../../../.venv", str(REPOSITORY / ".venv")))
    (project / "state").mkdir()
    with FakeProvider([cloud]) as fake_provider:
        environment = {
            **os.environ,
            **engine.environment,
            **fake_provider.environment(),
            "PULUMI_BACKEND_URL": (project / "state").as_uri(),
        }
        pulumi("stack", "init", project=project, environment=environment)
        refused = pulumi("preview", "--policy-pack", str(PACK), project=project, environment=environment)
        assert refused.returncode != 0
        violated = set(re.findall(r"^ *- \[mandatory\].*?(\S+)  \(", refused.stdout, re.MULTILINE))
        assert violated == set(EXPECTED[cloud]), refused.stdout
        pulumi("config", "set", "compliant", "true", project=project, environment=environment)
        passed = pulumi("preview", "--policy-pack", str(PACK), project=project, environment=environment)
        assert passed.returncode == 0, passed.stdout
        assert fake_provider.created == []
