"""`trainyard doctor`: host, account and cluster in one answer, for people and for programs."""

import io
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from engine.provider.cluster_claim import NAME, NAMESPACE
from infra.errors import ExitCode
from local.toolchain.doctor import Diagnosis, DoctorFinding, DoctorStatus
from tests.objects import thing
from tests.trainyard.stack.cluster_fakes import furnished, node
from tests.trainyard.stack.test_cluster import onprem
from trainyard.forms import Form
from trainyard.stack import doctor
from trainyard.stack.session import Session

CLAIM = thing("v1", "ConfigMap", NAME, NAMESPACE, data={"owner": "trainyard/prod", "since": "2026-11-01"})


@pytest.mark.parametrize("form", [Form.TEXT, Form.JSON])
def test_a_cluster_of_others_is_asked_and_its_problems_are_those_of_up(
    form: Form, monkeypatch: pytest.MonkeyPatch
) -> None:
    to_do = DoctorFinding("artifacts", "chart/kueue", DoctorStatus.TODO, "download 1 MB")
    monkeypatch.setattr(doctor, "diagnose", lambda *_, **__: Diagnosis((to_do,)))
    monkeypatch.setattr(doctor, "wanted_artifacts", lambda _: ())
    output = io.StringIO()
    with furnished(node("n-1", gpus=8), node("n-2"), CLAIM) as api:
        fake = SimpleNamespace(
            toolchain=None,
            packages=None,
            is_embedded=False,
            is_of_others=True,
            stack=onprem(),
            stack_name="mine",
            target=SimpleNamespace(open_account=lambda: None),
            engine=SimpleNamespace(project="trainyard", backend_url="file:///state"),
            api=api,
            console=Console(file=output, width=200),
        )
        code = doctor.examine(cast(Session, cast(Any, fake)), form)
    assert code == ExitCode.HOST
    if form is Form.TEXT:
        assert "stack trainyard/prod has it since 2026-11-01" in output.getvalue()
        assert "cannot start yet" in output.getvalue()
    else:
        found = json.loads(output.getvalue())
        assert [each["name"] for each in found["findings"]] == ["chart/kueue"]
        assert [each["path"] for each in found["problems"]] == ["the cluster"]
        assert "names of its objects" in found["notes"][0]
