"""EFA by Dynamic Resource Allocation: the driver, and the ResourceClaims of pods for NICs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import catalog
from infra.stackfile import Stack
from infra.stackfile.node_pool import NodePoolSpec
from infra.targets.aws.stackfile.nics import network_interfaces
from tests.infra.evaluated import findings
from tests.infra.plan import Plan, plan

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


def pod_of(found: Plan, runtime: str) -> Mapping[str, Any]:
    jobs = found.named("ClusterTrainingRuntime")[runtime]["spec"]["template"]["spec"]["replicatedJobs"]
    pod: Mapping[str, Any] = jobs[0]["template"]["spec"]["template"]["spec"]
    return pod


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
    assert (variant.environment, variant.unset, variant.hugepages_2mi_mib) == (
        plugged.environment,
        plugged.unset,
        plugged.hugepages_2mi_mib,
    )


def test_a_pod_claims_the_nics_and_asks_for_no_resource_of_the_plugin(claims_plan: Plan) -> None:
    pod = pod_of(claims_plan, "torch-efav3-dra")
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8, "hugepages-2Mi": "5120Mi"}
    (asked,) = container["resources"]["claims"]
    (made,) = pod["resourceClaims"]
    assert asked["name"] == made["name"]
    for team in ("research", "platform"):
        template = claims_plan.named("ResourceClaimTemplate")[
            f"team-{team}/{made['resourceClaimTemplateName']}"
        ]
        (request,) = template["spec"]["spec"]["devices"]["requests"]
        assert request["exactly"] == {
            "deviceClassName": "efa.networking.k8s.aws",
            "allocationMode": "ExactCount",
            "count": 16,
        }


def test_the_driver_replaces_the_device_plugin(claims_plan: Plan, aws_plan: Plan) -> None:
    assert "kube-system/efa-device-plugin" not in claims_plan.named("DaemonSet")
    assert driver_nodes(claims_plan) == (["trainyard.dev/fabric"], ["efav3-dra"])
    labels = claims_plan.named("NodeGroup")["training-on-demand-us-east-2b"]["labels"]
    assert labels["trainyard.dev/fabric"] == "efav3-dra"
    assert aws_plan.named("Release").keys() == {"cluster-autoscaler"}


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


def test_queues_do_not_count_what_is_claimed(claims_plan: Plan) -> None:
    config = claims_plan.named("ConfigMap")["kueue-system/kueue-manager-config"]["data"]
    assert "KueueDRAIntegration: false" in config["controller_manager_config.yaml"]
