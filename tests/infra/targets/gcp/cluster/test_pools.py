"""Node pools of GKE: every machine of the catalogue, in each capacity type, with its NICs and TPU slices."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import catalog
from catalog import Machine
from infra.stackfile import Stack
from infra.stackfile.source import show
from infra.targets.gcp.stackfile.groups import groups
from infra.targets.gcp.target import TARGET
from tests.infra.golden import assert_golden
from tests.infra.plan import Plan, cluster_plan
from tests.infra.shown import blocks_of
from tests.infra.targets.gcp.stacks import ZONE, pool, with_pools, with_provider
from tests.tables import table

MACHINES = [
    each for each in catalog.machines(cloud="gcp") if not each.accelerator or each.fabric != "roce-nvl72"
]


def _name(machine: Machine) -> str:
    return machine.name


def _topology(machine: Machine) -> dict[str, Any]:
    return {"topology": machine.topologies[0]} if machine.topologies else {}


@pytest.fixture(scope="module")
def all_machines(gcp: Stack, rendered: Path) -> Plan:
    pools = [pool(machine.name, name=machine.name, **_topology(machine)) for machine in MACHINES]
    return cluster_plan(with_pools(gcp, *pools), rendered)


@pytest.fixture(scope="module")
def bought(gcp: Stack, rendered: Path) -> Plan:
    machine = "a3-ultragpu-8g"
    pools = [
        pool(machine, name="on-demand"),
        pool(machine, name="spot", capacity="spot"),
        pool(machine, name="reserved", capacity="reserved", reservation={"id": "h200/reservationBlocks/a"}),
        pool(machine, name="flexible", provisioning="node-by-node", max_run="24h"),
        pool(machine, name="queued", provisioning="all-at-once"),
        pool(machine, name="placed", placement="compact", provisioning="node-by-node"),
        pool(machine, name="dranet", fabric="roce-dra"),
    ]
    return cluster_plan(with_pools(with_provider(gcp, release_channel="none"), *pools), rendered)


def made(found: Plan, name: str) -> Mapping[str, Any]:
    return found.named("NodePool")[f"training-{name}"]


@pytest.mark.parametrize("machine", MACHINES, ids=_name)
def test_accelerators_drivers_and_disks_are_the_machines(machine: Machine, all_machines: Plan) -> None:
    node = made(all_machines, machine.name)["nodeConfig"]
    assert node["machineType"] == machine.name
    if machine.accelerator and not machine.topologies:
        (gpus,) = node["guestAccelerators"]
        assert gpus["count"] == machine.num_accelerators
        assert gpus["type"].startswith("nvidia-")
        assert gpus["gpuDriverInstallationConfig"] == {"gpuDriverVersion": "LATEST"}
    else:
        assert "guestAccelerators" not in node
    older = {"a2-ultragpu-8g": 8, "a3-highgpu-8g": 16, "a3-megagpu-8g": 16}
    ssds = {**older, "a3-ultragpu-8g": 32, "a4-highgpu-8g": 32}.get(machine.name)
    assert node.get("ephemeralStorageLocalSsdConfig", {}).get("localSsdCount") == ssds
    hyperdisk = machine.name.startswith(("a3-ultra", "a4-", "n4-", "ct6e", "tpu7x"))
    assert node["diskType"] == ("hyperdisk-balanced" if hyperdisk else "pd-balanced")


@pytest.mark.parametrize("machine", MACHINES, ids=_name)
def test_every_node_has_our_key_a_separate_identity_and_no_public_address(
    machine: Machine, all_machines: Plan
) -> None:
    found = made(all_machines, machine.name)
    node = found["nodeConfig"]
    assert node["bootDiskKmsKey"] == "CryptoKey/training-data-key"
    assert node["serviceAccount"] == "training-nodes@example-training.iam.gserviceaccount.com"
    assert node["workloadMetadataConfig"] == {"mode": "GKE_METADATA"}
    assert node["gvnic"] == {"enabled": True}
    assert found["networkConfig"]["enablePrivateNodes"] is True


def test_nics_are_in_the_order_of_the_machine(all_machines: Plan) -> None:
    def subnets(machine: str) -> list[str]:
        network = made(all_machines, machine)["networkConfig"]
        return [each["subnetwork"] for each in network.get("additionalNodeNetworkConfigs", [])]

    mega = [f"training-fabric-{index}-0a1b2c3" for index in range(8)]
    ultra = ["training-gvnic-1-0a1b2c3", *(f"training-rdma-{index}-0a1b2c3" for index in range(8))]
    assert subnets("a3-megagpu-8g") == mega
    assert subnets("a3-ultragpu-8g") == subnets("a4-highgpu-8g") == ultra
    assert subnets("g2-standard-8") == []


def test_the_networks_of_all_fabrics_are_the_golden_ones(all_machines: Plan) -> None:
    assert_golden(blocks_of(all_machines, "Network", "Subnetwork", "Firewall"), "networks-gcp")


def test_pods_can_request_each_nic_by_name(all_machines: Plan) -> None:
    asked = {
        name for each in catalog.fabrics() if not each.nvlink_domain for name in each.interfaces.values()
    }
    assert {*asked, "gvnic-1"} == set(all_machines.named("GKENetworkParamSet"))
    parameters = all_machines.named("GKENetworkParamSet")
    assert parameters["rdma-0"]["spec"] == {
        "vpc": "training-rdma-0a1b2c3",
        "vpcSubnet": "training-rdma-0-0a1b2c3",
        "deviceMode": "RDMA",
    }
    assert (
        parameters["vpc1"]["spec"]["deviceMode"] == parameters["gvnic-1"]["spec"]["deviceMode"] == "NetDevice"
    )


def test_with_dranet_gke_creates_the_networks(gcp: Stack, rendered: Path) -> None:
    dranet = pool("a3-ultragpu-8g", fabric="roce-dra")
    found = cluster_plan(with_pools(gcp, dranet), rendered)
    config = made(found, "work")
    assert config["networkConfig"] == {"enablePrivateNodes": True, "acceleratorNetworkProfile": "auto"}
    assert config["nodeConfig"]["labels"]["cloud.google.com/gke-networking-dra-driver"] == "true"
    assert set(found.named("Network")) == {"training-vpc"}
    assert found.named("Cluster")["training"]["enableMultiNetworking"] is False


def test_pools_of_each_capacity_type_are_the_golden_ones(bought: Plan) -> None:
    """Pools of jobs are created empty and resized: one that does not get its nodes at creation fails."""
    assert_golden(blocks_of(bought, "NodePool", "NodePoolSize"), "pools-gcp")


def test_a_slice_of_several_hosts_is_a_node_pool(gcp: Stack, rendered: Path) -> None:
    v6e = pool("ct6e-standard-4t", name="v6e", nodes=8, topology="4x4")
    v7x = pool("tpu7x-standard-4t", name="v7x", nodes=2, topology="2x2x2")
    one_host = pool("ct6e-standard-4t", name="single", nodes=3, topology="2x2")
    found = cluster_plan(with_pools(gcp, v6e, v7x, one_host), rendered)
    for index in range(2):
        slice_ = made(found, f"v6e-{index}")
        assert slice_["nodeCount"] == 4
        assert slice_["placementPolicy"] == {"type": "COMPACT", "tpuTopology": "4x4"}
    policy = made(found, "v7x-0")["placementPolicy"]
    assert policy == {"type": "", "policyName": "training-v7x-0-0a1b2c3", "tpuTopology": "2x2x2"}
    workload = found.named("ResourcePolicy")["training-v7x-0"]["workloadPolicy"]
    assert workload == {"type": "HIGH_THROUGHPUT", "acceleratorTopology": "2x2x2"}
    assert found.named("NodePoolSize")["training-single"]["size"] == 3
    assert not [name for name in found.named("NodePoolSize") if name.startswith("training-v")]
    assert "placementPolicy" not in made(found, "single")


def test_a_slice_that_is_added_renames_no_other() -> None:
    before, after = (
        {group.role for group in groups(pool("ct6e-standard-4t", nodes=nodes, topology="4x4"), (ZONE,))}
        for nodes in (8, 12)
    )
    assert before < after


@pytest.mark.parametrize(("fields", "path", "words"), table(__file__, "lacking"))
def test_combinations_that_gcp_lacks_are_refused_with_the_alternative(
    gcp: Stack, fields: dict[str, Any], path: str, words: str
) -> None:
    stack = with_pools(gcp, pool(**fields))
    ((found, _, _, fix),) = TARGET.undeclared(stack.pools)
    assert show(found) == path
    assert words in fix
