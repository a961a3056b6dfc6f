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
from tests.infra.evaluated import findings
from tests.infra.fates import assert_all_data_is_known, assert_guide_tells_fates
from tests.infra.golden import assert_golden
from tests.infra.plan import Plan, Registration, cluster_plan, plan, stack_file
from tests.infra.shown import blocks_of
from tests.infra.targets.azure.stacks import with_pools, with_provider
from trainyard.cost.price import price_report
from trainyard.images.images import inventory

ELSEWHERE = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/before/providers"
"""Parent of existing resources."""

ADMINS = ["00000000-0000-0000-0000-000000000002"]


def own(found: Plan) -> list[Registration]:
    return [each for each in found.resources if each.type.startswith("azure-native:")]


def test_the_plan_is_the_golden_one(azure_plan: Plan) -> None:
    assert_golden(blocks_of(azure_plan), "azure")


def test_the_first_preview_lists_every_resource_and_the_policies_let_it_pass(
    azure: Stack, azure_plan: Plan, rendered: Path
) -> None:
    preview = plan(azure, rendered, preview=True)
    assert [each.urn for each in preview.resources] == [each.urn for each in azure_plan.resources]
    assert findings("azure", preview) == []


def test_the_policies_let_the_plan_pass(azure_plan: Plan) -> None:
    assert findings("azure", azure_plan) == []


def test_the_policies_see_data_elsewhere_and_an_open_endpoint(azure: Stack, rendered: Path) -> None:
    wide = {"admins": ADMINS, "public_cidrs": ["198.51.0.0/16"]}
    elsewhere = with_provider(azure, region="eastus", access=wide)
    found = findings("azure", cluster_plan(elsewhere, rendered))
    refused = " ".join(found)
    assert "security-private-endpoint" in refused
    for kind in ("ManagedCluster::", "StorageAccount::", "AmlFilesystem::", "Vault::", "VirtualNetwork::"):
        assert kind in refused


def test_every_input_fits_the_sdks_types(azure: Stack, azure_plan: Plan, rendered: Path) -> None:
    others = [
        {"kind": "netapp", "capacity": "12Ti", "service_level": "ultra"},
        {"kind": "blob-nfs", "account": "exampletrainingnfs"},
    ]
    plans = [azure_plan, *(cluster_plan(with_provider(azure, filesystem=each), rendered) for each in others)]
    found = {each.urn: list(sdk.problems(each.type, each.inputs)) for made in plans for each in own(made)}
    assert {urn: problems for urn, problems in found.items() if problems} == {}


def test_every_resource_uses_the_stacks_one_provider(azure_plan: Plan) -> None:
    (provider,) = {each.provider for each in own(azure_plan)}
    assert "pulumi:providers:azure-native::training" in provider


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


def test_nvidias_operator_installs_gpu_drivers_after_nic_drivers(azure_plan: Plan) -> None:
    assert all(pool["gpuProfile"] == {"driver": "None"} for pool in azure_plan.named("AgentPool").values())
    operators = {each.name: each for each in azure_plan.resources if each.type.endswith(":Release")}
    nics, gpus = operators["network-operator"].inputs["values"], operators["gpu-operator"]
    assert nics["nfd"] == {"enabled": True, "deployNodeFeatureRules": False}
    assert gpus.inputs["values"]["nfd"] == {"enabled": False}
    assert gpus.inputs["values"]["driver"]["rdma"]["enabled"]
    assert any(urn.endswith(":NicClusterPolicy::nic-cluster-policy") for urn in gpus.dependencies)
    (policy,) = [each for each in azure_plan.resources if each.type.endswith(":NicClusterPolicy")]
    assert any(":NodeFeatureRule::" in urn for urn in policy.dependencies)


def test_operators_run_on_spot_nodes_too(azure_plan: Plan) -> None:
    anywhere = [{"operator": "Exists"}]
    values = {name: each["values"] for name, each in azure_plan.named("Release").items()}
    assert values["gpu-operator"]["daemonsets"]["tolerations"] == anywhere
    assert values["network-operator"]["node-feature-discovery"]["worker"]["tolerations"] == anywhere
    (policy,) = azure_plan.named("NicClusterPolicy").values()
    assert policy["spec"]["tolerations"] == anywhere


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


OTHERS = f"{ELSEWHERE}/Microsoft.Storage/storageAccounts/exampledata"


@pytest.fixture(scope="module")
def staged(azure: Stack, rendered: Path) -> Plan:
    """The stack with a dataset of another account, one of the stack's account, and a public one."""
    digest = f"sha256:{'0' * 64}"
    read = [
        DatasetSpec.model_validate(
            {
                "name": "pile",
                "source": "az://sets/pile/",
                "digest": digest,
                "size": "100Gi",
                "account": OTHERS,
            }
        ),
        DatasetSpec.model_validate(
            {"name": "books", "source": "az://imports/", "digest": digest, "size": "1Gi"}
        ),
        DatasetSpec.model_validate(
            {
                "name": "commons",
                "source": "az://open/a.tar",
                "digest": digest,
                "size": "1Gi",
                "account": "open",
                "public": True,
            }
        ),
    ]
    return plan(azure.model_copy(update={"datasets": tuple(read)}), rendered)


def test_the_identity_of_staging_jobs_may_read_only_their_sources(staged: Plan) -> None:
    rights = staged.named("RoleAssignment")
    mine = {name: each for name, each in rights.items() if name.startswith("training-dataset")}
    assert mine.keys() == {"training-dataset-pile", "training-dataset-books"}
    pile, books = mine["training-dataset-pile"], mine["training-dataset-books"]
    assert pile["scope"] == f"{OTHERS}/blobServices/default/containers/sets"
    assert "StringLike 'pile/*'" in pile["condition"]
    assert books["scope"].endswith("/StorageAccount/training-storage/blobServices/default/containers/imports")
    assert "condition" not in books, "the whole container is the dataset"
    assert {each["roleDefinitionId"].rpartition("/")[2] for each in mine.values()} == {
        "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"
    }
    assert {each["principalId"] for each in mine.values()} == {"training-datasets-principal"}


def test_staging_jobs_have_an_identity_if_their_source_needs_one(staged: Plan) -> None:
    subject = staged.named("FederatedIdentityCredential")["training-datasets"]["subject"]
    assert subject == "system:serviceaccount:trainyard-storage:default"
    account = staged.named("ServiceAccountPatch")["trainyard-storage/default"]["metadata"]
    assert account["annotations"]["azure.workload.identity/client-id"] == "training-datasets-client"
    templates = {
        job["metadata"]["labels"]["trainyard.dev/dataset"]: job["spec"]["template"]
        for job in staged.named("Job").values()
        if "trainyard.dev/dataset" in job["metadata"].get("labels", {})
    }
    labels = {name: each.get("metadata", {}).get("labels") for name, each in templates.items()}
    uses = {"azure.workload.identity/use": "true"}
    assert labels == {"pile": uses, "books": uses, "commons": None}
    variables = {
        name: {each["name"]: each.get("value") for each in template["spec"]["containers"][0]["env"]}
        for name, template in templates.items()
    }
    accounts = {name: each["AZURE_STORAGE_ACCOUNT_NAME"] for name, each in variables.items()}
    assert accounts == {"pile": "exampledata", "books": "exampletraining", "commons": "open"}
    assert variables["commons"]["AZURE_SKIP_SIGNATURE"] == "true"


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
    assert service["deleteRetentionPolicy"] == {"days": 60, "enabled": True}


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


def test_objects_are_deleted_with_the_cluster(azure_plan: Plan) -> None:
    objects = [each for each in azure_plan.resources if each.type.startswith("kubernetes:")]
    owners = {each.deleted_with.rpartition("$")[2] for each in objects}
    assert owners == {"azure-native:containerservice:ManagedCluster::training"}


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
    for kind in (
        "StorageAccount",
        "BlobContainer",
        "Vault",
        "Key",
        "VirtualNetwork",
        "Subnet",
        "NatGateway",
        "Workspace",
    ):
        assert not found.named(kind), kind
    assert set(found.named("ResourceGroup")) == {"training-cluster"}
    assert found.named("ManagedCluster")["training"]["networkProfile"]["outboundType"] == "userDefinedRouting"
    assert found.named("RoleAssignment")["training-data-key"]["scope"] == f"{vault}/keys/data"
    assert found.named("RoleAssignment")["training-nodes-registry"]["scope"].endswith("/registries/before")


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


def test_an_empty_pool_is_tagged_with_what_its_nodes_would_have(azure: Stack, rendered: Path) -> None:
    found = cluster_plan(with_pools(azure, **QUEUED_POOL), rendered)
    tags = found.named("AgentPool")["training-call"]["tags"]
    resources = "k8s.io_cluster-autoscaler_node-template_resources_"
    assert {name: value for name, value in tags.items() if name.startswith("k8s.io")} == {
        f"{resources}nvidia.com_gpu": "8",
        f"{resources}rdma_ib": "8",
    }
    assert tags["trainyard-stack"] == "training"


def test_a_job_on_autoscaled_nodes_is_admitted_once_all_are_there(azure: Stack, rendered: Path) -> None:
    found = plan(with_pools(azure, **QUEUED_POOL), rendered)
    (config,) = found.named("ProvisioningRequestConfig").values()
    assert config["spec"] == {
        "provisioningClassName": "best-effort-atomic-scale-up.autoscaling.x-k8s.io",
        "managedResources": ["nvidia.com/gpu"],
    }
    (queue,) = found.named("ClusterQueue").values()
    (check,) = queue["spec"]["admissionChecksStrategy"]["admissionChecks"]
    assert check["onFlavors"] == ["call"]
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


def test_pods_on_amds_gpus_have_all_nics_and_the_image_for_rocm(amd_plan: Plan) -> None:
    pod = runtime_pod(amd_plan, "torch-ib-ndr-rocm")["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"amd.com/gpu": 8, "rdma/ib": 8}
    assert container["image"].startswith("registry.example.com/training-image@")
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert variables["RCCL_MSCCL_ENABLE"] == "0"
    assert "NCCL_TOPO_FILE" not in variables
    assert list(fabric_lint.pod(pod, 2, "ib-ndr-rocm")) == []
    (pool,) = amd_plan.named("AgentPool").values()
    assert pool["nodeTaints"] == ["amd.com/gpu=present:NoSchedule"]
    assert pool["gpuProfile"] == {"driver": "None"}


def test_amds_driver_is_installed_after_the_nics_and_before_amds_operator(amd_plan: Plan) -> None:
    assert set(amd_plan.named("Release")) == {"network-operator", "gpu-operator-charts"}
    depends = {each.name: " ".join(each.dependencies) for each in amd_plan.resources}
    assert "NicClusterPolicy::nic-cluster-policy" in depends["kube-system/amdgpu-driver"]
    assert "DaemonSet::kube-system/amdgpu-driver" in depends["gpu-operator-charts"]
    driver = amd_plan.named("DaemonSet")["kube-system/amdgpu-driver"]["spec"]["template"]["spec"]
    affinity = driver["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (expression,) = affinity["nodeSelectorTerms"][0]["matchExpressions"]
    assert (expression["key"], expression["values"]) == ("trainyard.dev/accelerator", ["mi300x"])


def test_amds_operator_finds_virtual_functions_and_tolerates_spot_taints(amd_plan: Plan) -> None:
    (config,) = amd_plan.named("DeviceConfig").values()
    assert config["spec"]["selector"] == {"feature.node.kubernetes.io/amd-vgpu": "true"}
    everything = [{"operator": "Exists"}]
    plugin, exporter = config["spec"]["devicePlugin"], config["spec"]["metricsExporter"]
    assert plugin["devicePluginTolerations"] == plugin["nodeLabellerTolerations"] == everything
    assert exporter["tolerations"] == everything


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
