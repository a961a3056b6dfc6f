"""The plan of the shipped Azure stack, and of variants: networks, pools, pods, volumes, datasets, AMD."""

from datetime import date
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from catalog import MissingPrice, StoragePurchase, fabric_lint
from infra.common.artifacts import ROOT, Artifacts
from infra.platform.jobs.topologies import topologies_of
from infra.stackfile import Stack, load
from infra.stackfile.dataset import DatasetSpec
from infra.stackfile.node_pool import NodePoolSpec
from infra.stackfile.storage import LifecycleSpec
from rehearsal import sdk
from rehearsal.cloud import RequestedResource
from rehearsal.fake import refusals_of
from tests.infra.evaluated import assert_sound, findings
from tests.infra.fates import assert_all_data_is_known, assert_guide_tells_fates
from tests.infra.golden import assert_golden
from tests.infra.plan import Plan, Registration, cluster_plan, plan, stack_file
from tests.infra.shown import blocks_of
from tests.infra.targets.azure.stacks import with_pools, with_provider
from tests.tables import table
from trainyard.cost.price import price_report
from trainyard.images.images import inventory

ELSEWHERE = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/before/providers"
"""Parent of existing resources."""

ADMINS = ["00000000-0000-0000-0000-000000000002"]


def own(found: Plan) -> list[Registration]:
    return [each for each in found.resources if each.type.startswith("azure-native:")]


def test_the_plan_is_the_golden_one(azure_plan: Plan) -> None:
    assert_golden(blocks_of(azure_plan), "azure")


def test_the_plan_is_sound(azure: Stack, azure_plan: Plan, rendered: Path) -> None:
    assert_sound("azure", azure, azure_plan, rendered, "azure-native:containerservice:ManagedCluster")


def test_the_policies_see_data_elsewhere_and_an_open_endpoint(azure: Stack, rendered: Path) -> None:
    wide = {"admins": ADMINS, "public_cidrs": ["198.51.0.0/16"]}
    elsewhere = with_provider(azure, region="eastus", access=wide)
    found = findings("azure", cluster_plan(elsewhere, rendered))
    refused = " ".join(found)
    assert "security-private-endpoint" in refused
    for kind in ("ManagedCluster::", "StorageAccount::", "AmlFilesystem::", "Vault::", "VirtualNetwork::"):
        assert kind in refused


def test_every_input_of_other_filesystems_fits_the_sdks_types(azure: Stack, rendered: Path) -> None:
    others = [
        {"kind": "netapp", "capacity": "12Ti", "service_level": "ultra"},
        {"kind": "blob-nfs", "account": "exampletrainingnfs"},
    ]
    plans = [cluster_plan(with_provider(azure, filesystem=each), rendered) for each in others]
    found = {each.urn: list(sdk.problems(each.type, each.inputs)) for made in plans for each in own(made)}
    assert {urn: problems for urn, problems in found.items() if problems} == {}


def test_names_are_valid_in_azure(azure: Stack, rendered: Path) -> None:
    long = azure.model_copy(update={"name": "a-name-as-long-as-a-stack-may-have-it-yes"[:40]})
    (vault,) = cluster_plan(long, rendered).named("Vault").values()
    assert len(vault["vaultName"]) <= 24


def test_only_named_networks_reach_the_api_server(azure: Stack, azure_plan: Plan, rendered: Path) -> None:
    profile = azure_plan.named("ManagedCluster")["training"]["apiServerAccessProfile"]
    assert profile["enablePrivateCluster"] is False
    assert profile["authorizedIPRanges"] == ["203.0.113.7/32"]
    private = with_provider(azure, access={"admins": ADMINS})
    profile = cluster_plan(private, rendered).named("ManagedCluster")["training"]["apiServerAccessProfile"]
    assert profile["enablePrivateCluster"] is True
    assert "authorizedIPRanges" not in profile


def test_a_reserved_pool_and_the_control_plane_may_use_the_reservation(azure: Stack, rendered: Path) -> None:
    reservation = {"id": f"{ELSEWHERE}/Microsoft.Compute/capacityReservationGroups/h100"}
    reserved = with_pools(
        azure, capacity="reserved", machine="Standard_ND96isr_H100_v5", reservation=reservation
    )
    found = cluster_plan(reserved, rendered)
    (pool,) = found.named("AgentPool").values()
    assert pool["capacityReservationGroupID"] == reservation["id"]
    assert found.named("RoleAssignment")["training-control-plane-work"]["scope"] == reservation["id"]


def runtime_pod(found: Plan, name: str) -> dict[str, Any]:
    runtime = found.named("ClusterTrainingRuntime")[name]
    template: dict[str, Any] = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"][
        "template"
    ]
    return template


@pytest.mark.parametrize(
    ("machine", "fabric"), [("Standard_ND96asr_v4", "ib-hdr"), ("Standard_ND96isr_H200_v5", "ib-ndr")]
)
def test_the_topology_file_pairs_every_gpu_with_a_nic(machine: str, fabric: str) -> None:

    root = ElementTree.fromstring(topologies_of([fabric])[fabric])
    devices = {
        kind: [each for each in root.iter("pci") if each.get("class") == kind]
        for kind in ("0x030200", "0x020700")
    }
    assert [len(each) for each in devices.values()] == [8, 8]
    bus = [each.get("busid") for found in devices.values() for each in found]
    assert len({*bus}) == 16
    for switch in root.iter("pci"):
        below = [each.get("class") for each in switch]
        assert below.count("0x030200") == below.count("0x020700")


@pytest.fixture(scope="module")
def staged(azure: Stack, rendered: Path) -> Plan:
    """The stack with a dataset of another account, one of the stack's account, and a public one."""
    read = tuple(DatasetSpec.model_validate(each) for each in table(__file__, "datasets"))
    return plan(azure.model_copy(update={"datasets": read}), rendered)


def test_staging_jobs_read_only_their_sources_by_an_identity_if_they_need_one(staged: Plan) -> None:
    rights = ("RoleAssignment", "FederatedIdentityCredential", "ServiceAccountPatch", "Job")
    assert_golden(blocks_of(staged, *rights), "staged-azure")


def test_the_policies_let_datasets_pass(staged: Plan) -> None:
    assert findings("azure", staged) == []


def test_the_lifecycle_rules_of_the_container_are_the_stacks(azure: Stack, rendered: Path) -> None:
    lifecycle = LifecycleSpec(superseded_days=3, deleted_days=60)
    store = azure.storage.object_store.model_copy(update={"lifecycle": lifecycle})
    storage = azure.storage.model_copy(update={"object_store": store})
    made = cluster_plan(azure.model_copy(update={"storage": storage}), rendered)
    (policy,) = made.named("ManagementPolicy").values()
    actions = [rule["definition"]["actions"] for rule in policy["policy"]["rules"]]
    assert actions[0]["baseBlob"]["delete"] == {"daysAfterModificationGreaterThan": 3}
    assert actions[1]["version"]["delete"] == {"daysAfterCreationGreaterThan": 60}
    (service,) = made.named("BlobServiceProperties").values()
    assert service["deleteRetentionPolicy"] == {"days": 7, "enabled": True}, "of versions, checkpoints' too"
    assert service["containerDeleteRetentionPolicy"] == {"days": 60, "enabled": True}


def test_snapshots_of_netapp_are_a_policy_of_its_account(azure: Stack, rendered: Path) -> None:
    netapp = with_provider(azure, filesystem={"kind": "netapp", "capacity": "16Ti"})
    (volume,) = plan(netapp, rendered).named("CapacityPoolVolume").values()
    assert "dataProtection" not in volume
    checkpoints = netapp.storage.checkpoints.model_copy(update={"snapshot_days": 14})
    storage = netapp.storage.model_copy(update={"checkpoints": checkpoints})
    snapshots_plan = plan(netapp.model_copy(update={"storage": storage}), rendered)
    (policy,) = snapshots_plan.named("SnapshotPolicy").values()
    assert policy["dailySchedule"] == {"hour": 5, "minute": 0, "snapshotsToKeep": 14}
    assert policy["enabled"] is True
    (volume,) = snapshots_plan.named("CapacityPoolVolume").values()
    chosen = volume["dataProtection"]["snapshot"]["snapshotPolicyId"]
    assert chosen.endswith("/SnapshotPolicy/training-netapp")


def test_netapp_and_blob_storage_are_volumes_too(azure: Stack, rendered: Path) -> None:
    netapp = plan(with_provider(azure, filesystem={"kind": "netapp", "capacity": "16Ti"}), rendered)
    nfs = [each["spec"]["nfs"] for each in netapp.named("PersistentVolume").values()]
    assert {"server": "10.64.128.4", "path": "/training-netapp/checkpoints/research"} in nfs
    assert not netapp.named("CSIDriver")
    blob = plan(with_provider(azure, filesystem={"kind": "blob-nfs", "account": "examplenfs"}), rendered)
    csi = [each["spec"]["csi"]["volumeAttributes"] for each in blob.named("PersistentVolume").values()]
    assert {each["containerName"] for each in csi} == {
        "shared",
        "logs",
        "checkpoints-research",
        "checkpoints-platform",
    }
    assert blob.named("ManagedCluster")["training"]["storageProfile"]["blobCSIDriver"] == {"enabled": True}


def test_data_and_its_keys_are_in_a_separate_group(azure: Stack, azure_plan: Plan, rendered: Path) -> None:
    def kinds(found: Plan, *, retained: bool) -> set[str]:
        chosen = [each for each in own(found) if (each.retained if retained else each.protect)]
        return {each.type.rpartition(":")[2] for each in chosen}

    data_types = {"ResourceGroup", "Vault", "Key", "StorageAccount", "BlobContainer", "UserAssignedIdentity"}
    assert data_types <= kinds(azure_plan, retained=True)
    for each in own(azure_plan):
        if each.retained and "resourceGroupName" in each.inputs and "ResourceGroup" not in each.type:
            assert each.inputs["resourceGroupName"] == "training-data", each.urn
    assert {"ManagedCluster", "AmlFilesystem", "StorageAccount", "Vault"} <= kinds(azure_plan, retained=False)
    open_plan = cluster_plan(with_provider(azure, deletion_protection=False), rendered)
    assert not kinds(open_plan, retained=False)


def test_existing_resources_are_used_and_not_created(azure: Stack, rendered: Path) -> None:
    group = ELSEWHERE
    vault = f"{group}/Microsoft.KeyVault/vaults/before-keys"
    url = "https://before-keys.vault.azure.net/keys"
    keys = {"vault": vault, "cluster": f"{url}/cluster/{'0' * 32}", "data": f"{url}/data/{'1' * 32}"}
    subnet = f"{group}/Microsoft.Network/virtualNetworks/before/subnets"
    places = ("nodes", "api_server", "endpoints", "filesystem")
    existing = {name: f"{subnet}/{name}" for name in places}
    found = cluster_plan(
        with_provider(
            azure,
            storage_group="before",
            keys=keys,
            network={"outbound": "routes", "existing": existing},
            log_workspace=f"{group}/Microsoft.OperationalInsights/workspaces/before",
            registry=f"{group}/Microsoft.ContainerRegistry/registries/before",
        ),
        rendered,
    )
    assert_golden(blocks_of(found, "azure-native:"), "existing-azure")


def test_machines_are_priced_and_missing_prices_are_reported(azure: Stack) -> None:
    found = price_report(azure, date(2026, 11, 21))
    assert {cost.name for cost in found.pools if isinstance(cost.price, MissingPrice)} == {"spot"}
    assert found.usd_per_hour is not None
    assert {each.purchase.kind for each in found.storage if isinstance(each.purchase, StoragePurchase)} == {
        "azure-lustre-250",
        "blob-hot-zrs",
    }


def test_every_image_of_the_nodes_is_listed(azure: Stack) -> None:
    found = inventory(azure, Artifacts.from_environment())
    assert any("azurelustre-csi:" in image for image in found.images)
    assert any("/doca-driver:" in image and image.endswith("-ubuntu24.04-amd64") for image in found.images)
    assert {chart.name for chart in found.charts} == {"gpu-operator", "network-operator"}


def test_a_stack_of_development_has_no_fabric_and_no_nics(azure: Stack, rendered: Path) -> None:
    small = plan(with_pools(azure, machine="Standard_NC24ads_A100_v4", nodes=1), rendered)
    assert set(small.named("Release")) == {"gpu-operator"}
    assert small.named("Release")["gpu-operator"]["values"]["nfd"] == {"enabled": True}
    (topology,) = small.named("Topology").values()
    assert topology["spec"]["levels"][0]["nodeLabel"] == "topology.kubernetes.io/zone"
    assert load(stack_file("azure")) == azure


QUEUED_POOL = {
    "name": "call",
    "machine": "Standard_ND96isr_H100_v5",
    "nodes": 3,
    "provisioning": "all-at-once",
}


def test_the_number_of_autoscaled_nodes_is_no_drift(azure: Stack, rendered: Path) -> None:
    found = cluster_plan(with_pools(azure, **QUEUED_POOL, capacity="spot"), rendered)
    pool = found.named("AgentPool")["training-call"]
    sizes = [pool[key] for key in ("enableAutoScaling", "minCount", "count", "maxCount")]
    assert sizes == [True, 0, 0, 3]
    (registered,) = (each for each in found.resources if each.name == "training-call")
    assert registered.ignored == ("count",)
    assert "minCount" not in found.named("ManagedCluster")["training"]["agentPoolProfiles"][0]


def test_a_job_on_autoscaled_nodes_is_admitted_once_all_are_there(azure: Stack, rendered: Path) -> None:
    found = plan(with_pools(azure, **QUEUED_POOL), rendered)
    kinds = ("AgentPool", "ProvisioningRequestConfig", "ClusterQueue")
    assert_golden(blocks_of(found, *kinds), "queued-azure")
    # Kueue reads the definition of ProvisioningRequests once, when it starts.
    (provider,) = (each for each in found.resources if each.type == "pulumi:providers:kubernetes")
    assert any(urn.endswith("AgentPool::training-call") for urn in provider.dependencies)
    assert findings("azure", found) == []


def test_nodes_for_preprocessing_are_added_one_by_one(azure: Stack, rendered: Path) -> None:
    pool = {"name": "cpu", "machine": "Standard_D16s_v5", "nodes": 4, "provisioning": "node-by-node"}
    more = NodePoolSpec.model_validate({**pool, "capacity": "spot"})
    stack = azure.model_copy(update={"pools": (*azure.pools, more)})
    made = cluster_plan(stack, rendered).named("AgentPool")["training-cpu"]
    assert (made["enableAutoScaling"], made["maxCount"]) == (True, 4)
    assert not any(name.startswith("k8s.io") for name in made["tags"])


OF_AMD = ("training_image", "device_plugin", "node_labeller", "metrics_exporter", "utils")


@pytest.fixture(scope="module")
def amd_plan(azure: Stack, rendered: Path) -> Plan:
    images = {name: f"registry.example.com/{name.replace('_', '-')}@sha256:{0:064}" for name in OF_AMD}
    stack = with_provider(with_pools(azure, machine="Standard_ND96isr_MI300X_v5"), amd=images)
    return plan(stack, rendered)


def test_pods_driver_and_operator_of_amds_gpus_are_the_golden_ones(amd_plan: Plan) -> None:
    pod = runtime_pod(amd_plan, "torch-ib-ndr-rocm")["spec"]
    assert list(fabric_lint.pod(pod, 2, "ib-ndr-rocm")) == []
    kinds = ("AgentPool", "Release", "DaemonSet", "DeviceConfig", "torch-ib-ndr-rocm")
    assert_golden(blocks_of(amd_plan, *kinds), "amd-azure")


def test_the_policies_let_amds_machines_pass(amd_plan: Plan) -> None:
    assert findings("azure", amd_plan) == []


def test_nothing_waits_for_a_nic_while_all_pools_may_be_empty(azure: Stack, rendered: Path) -> None:
    """The NIC policy is ready once a node has a NIC, and Kueue, which requests nodes, would wait for it."""
    pools = tuple(
        pool if pool.is_system else pool.model_copy(update={"provisioning": "all-at-once"})
        for pool in azure.pools
    )
    found = plan(azure.model_copy(update={"pools": pools}), rendered)
    assert {each["count"] for each in found.named("AgentPool").values()} == {0}
    waited_for = refusals_of("azure")["no-cards"]
    policy = found.named("NicClusterPolicy")["nic-cluster-policy"]
    token = next(each.type for each in found.resources if each.type.endswith(":NicClusterPolicy"))
    assert not waited_for.matches(RequestedResource(token, "nic-cluster-policy", policy), "create")
    (variable,) = policy["spec"]["ofedDriver"]["env"]
    assert variable["value"].startswith("/host/")


def test_all_data_is_known_and_the_guide_says_what_becomes_of_it(azure_plan: Plan) -> None:
    assert_all_data_is_known(azure_plan, "azure")
    assert_guide_tells_fates(azure_plan, "azure", ROOT / "docs" / "azure.md")
