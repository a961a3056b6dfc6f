"""The policy on checkpoint time: a checkpoint must fit into the target's preemption notice."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from policies.config import EvaluatedStack, Measurement, stack_folder
from policies.evaluation import PolicyEvaluator
from policies.policy import Resource
from policies.spot import checkpoint_time
from policies.unknowns import PropertyBlock
from tests.policies.corpus import with_unknown

TODAY = date(2026, 11, 23)
SPOT = {"name": "spot", "capacity": "spot", "nodes": 2, "accelerator": {"model": "h100", "count": 8}}


def refusals(kind: str, seconds: float) -> list[str]:
    """Return the policy's violations for a stack with a spot pool whose checkpoint takes `seconds`."""
    props = PropertyBlock(with_unknown({"stack": {"target": {"kind": kind}, "pools": [SPOT]}}, None))
    stack = EvaluatedStack(today=TODAY, measurement=Measurement(seconds, TODAY))
    component = "trainyard:infra:AnyCluster"
    resource = Resource(component, "lab", f"urn:pulumi:s::p::{component}::lab", props=props, stack=stack)
    return [finding.message for finding in PolicyEvaluator((checkpoint_time.POLICY,)).evaluate(resource)]


@pytest.mark.parametrize("kind", ["aws", "azure", "coreweave"])
def test_twenty_seconds_fit_into_a_preemption_notice_of_thirty_or_more(kind: str) -> None:
    assert refusals(kind, 20) == []


def test_the_measurement_is_beside_the_stack_file(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: lab\nstackConfigDir: stacks\n")
    assert stack_folder(tmp_path / "program", {}) == tmp_path / "stacks"
    assert stack_folder(tmp_path, {"TRAINYARD_STACKS": "/elsewhere"}) == Path("/elsewhere")


def test_twenty_seconds_are_refused_on_gke_with_fifteen_usable_seconds() -> None:
    [message] = refusals("gcp", 20)
    assert message.startswith("checkpoint time: got 20 s; allowed: 11.25 s at most (15 s of notice")
