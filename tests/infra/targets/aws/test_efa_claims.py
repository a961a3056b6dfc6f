"""EFA by Dynamic Resource Allocation: the driver, and the ResourceClaims of pods for NICs."""

from pathlib import Path

import pytest

import catalog
from infra.stackfile import Stack
from infra.stackfile.node_pool import NodePoolSpec
from infra.targets.aws.stackfile.nics import network_interfaces
from tests.infra.evaluated import findings
from tests.infra.golden import assert_golden
from tests.infra.plan import Plan, plan
from tests.infra.shown import blocks_of

EFA = [
    machine
    for machine in catalog.machines(cloud="aws")
    if machine.fabric != "tcp" and not catalog.find_rack(machine.accelerator or "")
]


def claiming(stack: Stack) -> Stack:
    """Return the stack with the DRA driver's fabric class on all its machines with EFA."""
    pools = [
        pool.model_copy(update={"fabric": f"{pool.fabric}-dra"}) if pool.fabric != "tcp" else pool
        for pool in stack.pools
    ]
    return Stack.model_validate({**stack.model_dump(by_alias=True), "pools": pools})


@pytest.fixture(scope="module")
def claims_plan(aws: Stack, rendered: Path) -> Plan:
    return plan(claiming(aws), rendered)


def driver_nodes(found: Plan) -> tuple[list[str], list[str]]:
    """Return labels and values that select the DRA driver's nodes."""
    chosen = found.named("Release")["aws-dranet"]["values"]["supportedInstanceLabels"]
    return chosen["keys"], chosen["values"]


@pytest.mark.parametrize("machine", EFA, ids=lambda machine: machine.name)
def test_every_machine_with_efa_has_a_class_that_claims_all_its_nics(machine: catalog.Machine) -> None:
    (variant,) = [each for each in catalog.fabrics() if each.variant_of == machine.fabric]
    plugged = catalog.fabric(machine.fabric)
    assert variant.claim is not None
    (plugin_count,) = plugged.resources.values()
    cards = [each for each in network_interfaces(machine) if each.interface_type]
    assert variant.claim.count == plugin_count == len(cards)
    assert variant.claim.count <= 32  # the limit of a claim (resource.k8s.io/v1)
    assert (variant.environment, variant.refused, variant.hugepages_2mi_mib) == (
        plugged.environment,
        plugged.refused,
        plugged.hugepages_2mi_mib,
    )


def test_pods_claim_their_nics_and_the_driver_replaces_the_device_plugin(claims_plan: Plan) -> None:
    concerned = ("torch-efav3-dra", "ResourceClaimTemplate", "Release", "DaemonSet", "NodeGroup")
    assert_golden(blocks_of(claims_plan, *concerned), "claims-aws")


def test_nodes_have_the_one_or_the_other_where_a_stack_has_both(aws: Stack, rendered: Path) -> None:
    other = NodePoolSpec.model_validate(
        {
            "name": "claimed",
            "capacity": "on-demand",
            "nodes": 2,
            "machine": "p5.48xlarge",
            "fabric": "efav2-dra",
            "zones": ("us-east-2b",),
        }
    )
    both = plan(aws.model_copy(update={"pools": (*aws.pools, other)}), rendered)
    spec = both.named("DaemonSet")["kube-system/efa-device-plugin"]["spec"]["template"]["spec"]
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["nodeSelectorTerms"] == [
        {"matchExpressions": [{"key": "trainyard.dev/fabric", "operator": "In", "values": ["efav3"]}]}
    ]
    assert driver_nodes(both) == (["trainyard.dev/fabric"], ["efav2-dra"])


def test_the_policies_let_it_pass(claims_plan: Plan) -> None:
    assert findings("aws", claims_plan) == []
