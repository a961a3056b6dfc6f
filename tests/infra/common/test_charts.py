"""Charts rendered by Helm without a cluster: cached by content, with definitions kept apart."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from infra.common import charts
from infra.common.artifacts import Artifacts
from infra.common.charts import Renderer
from infra.errors import HostError, InputError
from tests.infra.plan import artifacts

CHART = """\
apiVersion: v2
name: small
version: 1.0.0
"""
TEMPLATE = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ required "say a name" .Values.name }}, namespace: {{ .Release.Namespace }}}
data: {version: {{ .Capabilities.KubeVersion.Version | quote }}}
---
apiVersion: v1
kind: Pod
metadata: {name: hook, annotations: {helm.sh/hook: post-install}}
"""
DEFINITION = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
"""


@pytest.fixture
def renderer(tmp_path: Path) -> Renderer:
    chart = tmp_path / "charts" / "small"
    for name, text in {
        "Chart.yaml": CHART,
        "templates/all.yaml": TEMPLATE,
        "crds/things.yaml": DEFINITION,
    }.items():
        (chart / name).parent.mkdir(parents=True, exist_ok=True)
        (chart / name).write_text(text)
    here = Artifacts(chart.parent, "image", tmp_path, {}, tmp_path / "rendered")
    return Renderer(here, "1.35.4")


def test_a_chart_is_rendered_for_the_stated_version_without_hooks(renderer: Renderer) -> None:
    (config,) = renderer.chart("small", "there", {"name": "one"}).objects
    assert config["metadata"] == {"name": "one", "namespace": "there"}
    assert config["data"]["version"] == "v1.35.4"


def test_temporary_files_of_a_killed_process_with_the_same_id_are_replaced(renderer: Renderer) -> None:
    first = renderer.chart("small", "there", {"name": "one"})
    folder = first.definitions.source.parent
    folder.rename(folder.with_name(f".{folder.name}.{os.getpid()}"))
    assert renderer.chart("small", "there", {"name": "one"}) == first


def test_definitions_are_separate_with_a_digest_that_the_bundle_confirms(renderer: Renderer) -> None:
    definitions = renderer.chart("small", "there", {"name": "one"}).definitions
    assert list(definitions.digests) == ["things.example.com"]
    assert "things.example.com" in definitions.source.read_text()


def test_a_chart_and_values_are_rendered_once(renderer: Renderer, monkeypatch: pytest.MonkeyPatch) -> None:
    first = renderer.chart("small", "there", {"name": "one"})
    monkeypatch.setattr(charts, "_run", lambda *_: pytest.fail("rendered again"))
    assert renderer.chart("small", "there", {"name": "one"}) == first


@pytest.mark.parametrize("change", ["values", "template", "version"])
def test_a_change_of_any_input_renders_again(renderer: Renderer, change: str) -> None:
    first = renderer.chart("small", "there", {"name": "one"})
    name, version = "one", "1.35.4"
    if change == "values":
        name = "two"
    elif change == "version":
        version = "1.34.0"
    else:
        template = renderer.artifacts.charts / "small" / "templates" / "all.yaml"
        template.write_text(template.read_text().replace("ConfigMap", "Secret"))
    assert replace(renderer, kubernetes_version=version).chart("small", "there", {"name": name}) != first


def test_values_that_the_chart_refuses_are_a_problem_with_helms_message(renderer: Renderer) -> None:
    with pytest.raises(InputError, match="say a name"):
        renderer.chart("small", "there", {})


def test_a_missing_helm_is_a_problem_of_the_host(
    renderer: Renderer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match="not on PATH"):
        renderer.chart("small", "there", {"name": "one"})


def test_a_missing_chart_is_a_problem_of_the_host(renderer: Renderer) -> None:
    with pytest.raises(HostError, match="trainyard doctor"):
        renderer.chart("other", "there", {})


def test_all_missing_artifacts_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(HostError) as caught:
        Artifacts.from_environment({}, tmp_path)
    missing = {problem.path for problem in caught.value.problems}
    assert missing == {"TRAINYARD_CHARTS", "TRAINYARD_TRAINING_IMAGE"}


def test_a_missing_training_environment_is_reported_only_if_pods_mount_it(tmp_path: Path) -> None:
    (tmp_path / "charts").mkdir()
    (tmp_path / "versions.yaml").write_text("images: {}\n")
    found = Artifacts.from_environment(
        {"TRAINYARD_CHARTS": str(tmp_path / "charts"), "TRAINYARD_TRAINING_IMAGE": "i"}, tmp_path
    )
    with pytest.raises(HostError, match="TRAINYARD_TRAINING_ENV"):
        found.mounted_env()


def test_the_pinned_charts_exist(rendered: Path) -> None:
    here = artifacts(rendered)
    for name in ("jobset", "trainer", "kueue", "mpi-operator", "training-operator"):
        assert here.chart(name).exists()
