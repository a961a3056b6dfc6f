"""The Kubernetes version of a stack: a minor version that the pinned operators support, or a default."""

from typing import Any

import pytest
import yaml

from infra.common.artifacts import kubernetes_version
from infra.stackfile import Stack, parse
from infra.stackfile.target import minor_of, supported_minors
from tests.infra.golden import CASES
from tests.infra.plan import stack_file

TESTED = kubernetes_version()


def stack(name: str, **provider: Any) -> Stack:
    data = yaml.safe_load(stack_file(name).read_text())["config"]["trainyard:stack"]
    return parse({**data, "target": {**data["target"], **provider}})


@pytest.mark.parametrize("name", ["aws", "gcp", "azure", "onprem"])
@pytest.mark.parametrize("minor", supported_minors())
def test_a_supported_minor_version_is_the_control_planes_and_the_charts(name: str, minor: str) -> None:
    found = stack(name, kubernetes_version=minor).target
    assert found.kubernetes_minor == minor
    rendered = TESTED if minor == minor_of(TESTED) else f"{minor}.0"
    assert found.rendered_version == rendered


@pytest.mark.parametrize("name", ["aws", "coreweave"])
def test_the_default_is_the_version_that_this_release_is_tested_with(name: str) -> None:
    assert stack(name).target.rendered_version == TESTED


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_an_existing_cluster_reports_its_version(cloud: str) -> None:
    file = CASES / "existing-cluster" / f"{cloud}.yaml"
    data = yaml.safe_load(file.read_text())["config"]["trainyard:stack"]
    data["target"]["existing_cluster"]["version"] = "1.34"
    assert parse(data).target.kubernetes_minor == "1.34"
