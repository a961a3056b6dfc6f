"""Existing Google Cloud resources, such as a VPC or a cluster, are used, and neither created nor deleted."""

import json
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from pulumi.output import Unknown

from infra.stackfile import Stack
from infra.targets.gcp.stackfile.target import (
    ExistingFilestoreSpec,
    ExistingGcpNetworkSpec,
    ExistingGkeSpec,
    ExistingManagedLustreSpec,
    FilestoreSpec,
    GcpNetworkSpec,
    GcpSpec,
    ManagedLustreSpec,
)
from tests.infra.evaluated import findings
from tests.infra.golden import assert_golden
from tests.infra.plan import Plan, cluster_plan, plan
from tests.infra.shown import blocks_of
from tests.infra.targets.gcp.stacks import with_provider

KEY = "projects/example-keys/locations/europe-west1/keyRings/data/cryptoKeys/training"
ADDRESS = IPv4Address("10.9.8.7")
NETWORK = GcpNetworkSpec(
    existing=ExistingGcpNetworkSpec(
        network="shared", subnetwork="gpu", pods_range="gpu-pods", services_range="gpu-services"
    )
)


GKE = ExistingGkeSpec(
    name="shared",
    endpoint="https://gke-0a1b2c3d.europe-west1.gke.goog",
    version="1.35",
    features=("workload-identity", "gcs-fuse", "lustre", "dataplane-v2", "multi-networking"),
)


@pytest.fixture(scope="module")
def found(gcp: Stack, rendered: Path) -> Plan:
    return cluster_plan(with_provider(gcp, network=NETWORK, kms_key=KEY, existing_bucket=True), rendered)


def test_existing_vpc_key_and_bucket_are_used_and_the_rest_is_the_golden_plan(found: Plan) -> None:
    """A VPC, a key and a bucket that exist are no resources; fabrics have separate VPCs."""
    assert_golden(blocks_of(found, "gcp:"), "existing-gcp")


def test_an_existing_lustre_is_mounted_and_its_service_gets_no_key(gcp: Stack, rendered: Path) -> None:
    existing = ExistingManagedLustreSpec(instance="scratch", address=ADDRESS, name="data")
    lustre = ManagedLustreSpec.model_validate(
        {"kind": "lustre", "capacity": "18000Gi", "zone": "europe-west1-b", "existing": existing}
    )
    found = plan(with_provider(gcp, network=NETWORK, filesystem=lustre), rendered)
    assert not any("gcp:lustre/" in each.type for each in found.resources)
    assert "training-data-key-lustre" not in found.named("CryptoKeyIAMMember")
    volumes = [each["spec"].get("csi", {}) for each in found.named("PersistentVolume").values()]
    mounted = {
        each["volumeHandle"]: each["volumeAttributes"]
        for each in volumes
        if "lustre" in each.get("driver", "")
    }
    attributes = mounted["example-training/europe-west1-b/scratch-checkpoints-research"]
    assert attributes == {"ip": "10.9.8.7", "filesystem": "data/checkpoints/research"}


def test_the_address_of_a_share_is_unknown_before_it_exists(gcp: Stack, rendered: Path) -> None:
    """In an existing network all inputs are known at a preview."""
    filestore = FilestoreSpec.model_validate({"kind": "filestore", "capacity": "18000Gi"})
    found = plan(with_provider(gcp, network=NETWORK, filesystem=filestore), rendered, preview=True)
    volumes = [each["spec"] for each in found.named("PersistentVolume").values()]
    assert {type(each["nfs"]["server"]) for each in volumes if "nfs" in each} == {Unknown}


def test_an_existing_share_is_mounted(gcp: Stack, rendered: Path) -> None:
    existing = ExistingFilestoreSpec(address=ADDRESS, share="vol1")
    filestore = FilestoreSpec.model_validate(
        {"kind": "filestore", "capacity": "18000Gi", "existing": existing}
    )
    found = plan(with_provider(gcp, network=NETWORK, filesystem=filestore), rendered)
    assert not any("gcp:filestore/" in each.type for each in found.resources)
    folders = [each["spec"].get("nfs") for each in found.named("PersistentVolume").values()]
    assert {"server": "10.9.8.7", "path": "/vol1/checkpoints/research"} in folders


@pytest.fixture(scope="module")
def in_a_cluster(gcp: Stack) -> Stack:
    assert isinstance(gcp.target, GcpSpec)
    access = gcp.target.access.model_copy(update={"viewers": (), "break_glass": ()})
    return with_provider(gcp, network=NETWORK, existing_cluster=GKE, access=access)


@pytest.fixture(scope="module")
def beside(in_a_cluster: Stack, rendered: Path) -> Plan:
    return plan(in_a_cluster, rendered)


def test_what_goes_into_an_existing_cluster_is_the_golden_plan(beside: Plan) -> None:
    assert_golden(blocks_of(beside, "gcp:"), "beside-gcp")


def test_a_team_of_the_admins_gets_access_too_since_only_the_owner_grants_admins_access(
    in_a_cluster: Stack, rendered: Path
) -> None:
    assert isinstance(in_a_cluster.target, GcpSpec)
    group = f"group:{in_a_cluster.teams[0].groups[0]}"
    access = in_a_cluster.target.access.model_copy(update={"admins": (group,)})
    bindings = plan(with_provider(in_a_cluster, access=access), rendered).named("IAMMember").values()
    assert ("roles/container.clusterViewer", group) in {(each["role"], each["member"]) for each in bindings}


def test_its_objects_are_deleted_one_by_one_since_the_cluster_is_retained(beside: Plan) -> None:
    objects = [each for each in beside.resources if each.type.startswith("kubernetes:")]
    assert objects
    assert {each.deleted_with for each in objects} == {""}


def test_it_is_reached_by_its_dns_name_or_by_its_address_and_certificate_authority(
    beside: Plan, in_a_cluster: Stack, rendered: Path
) -> None:
    def cluster(found: Plan) -> dict[str, str]:
        (only,) = json.loads(found.outputs["kubeconfig"])["clusters"]
        printed: dict[str, str] = only["cluster"]
        return printed

    assert cluster(beside) == {"server": GKE.endpoint}
    address = GKE.model_copy(update={"endpoint": "https://10.64.0.2", "certificate_authority": "Y2E="})
    by_address = plan(with_provider(in_a_cluster, existing_cluster=address), rendered)
    assert cluster(by_address) == {"server": "https://10.64.0.2", "certificate-authority-data": "Y2E="}


def test_the_policies_let_it_pass(beside: Plan) -> None:
    assert findings("gcp", beside) == []
