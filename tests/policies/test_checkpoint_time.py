"""The policy on checkpoint time: a checkpoint must fit into the target's preemption notice."""

from __future__ import annotations

import pytest

from policies.evaluation import PolicyEvaluator
from policies.policy import Resource
from policies.spot import checkpoint_time
from policies.unknowns import PropertyBlock
from tests.policies.corpus import with_unknown

SPOT = {"name": "spot", "capacity": "spot", "nodes": 2, "accelerator": {"model": "h100", "count": 8}}


def refusals(kind: str, **declared: object) -> list[str]:
    """Return the policy's violations for a stack with a spot pool with these keys."""
    pools = [SPOT | declared]
    props = PropertyBlock(with_unknown({"stack": {"target": {"kind": kind}, "pools": pools}}, None))
    component = "trainyard:infra:AnyCluster"
    resource = Resource(component, "lab", f"urn:pulumi:s::p::{component}::lab", props=props)
    return [finding.message for finding in PolicyEvaluator((checkpoint_time.POLICY,)).evaluate(resource)]


@pytest.mark.parametrize("kind", ["aws", "azure", "coreweave"])
def test_twenty_seconds_fit_into_a_preemption_notice_of_thirty_or_more(kind: str) -> None:
    assert refusals(kind, checkpoint_seconds=20) == []


def test_twenty_seconds_are_refused_on_gke_with_fifteen_usable_seconds() -> None:
    [message] = refusals("gcp", checkpoint_seconds=20)
    assert message.startswith(
        "stack.pools[0].checkpoint_seconds: got 20 s; allowed: 11.25 s at most (15 s of notice"
    )


@pytest.mark.parametrize("declared", [{}, {"capacity": "on-demand", "checkpoint_seconds": 20}])
def test_other_nodes_and_pools_that_their_jobs_measure_pass(declared: dict[str, object]) -> None:
    assert refusals("gcp", **declared) == []
