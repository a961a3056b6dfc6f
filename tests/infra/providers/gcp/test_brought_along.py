"""What a stack brings along is used, and neither made nor removed."""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path

import pytest

from infra.spec import Stack
from infra.spec.gcp import (
    ExistingFilestoreSpec,
    ExistingGcpNetworkSpec,
    ExistingManagedLustreSpec,
    FilestoreSpec,
    GcpNetworkSpec,
    ManagedLustreSpec,
)
from tests.infra.plan import Plan, cluster_plan, plan
from tests.infra.providers.gcp.stacks import with_provider

KEY = "projects/example-keys/locations/europe-west1/keyRings/data/cryptoKeys/training"
ADDRESS = IPv4Address("10.9.8.7")
NETWORK = GcpNetworkSpec(
    existing=ExistingGcpNetworkSpec(
        network="shared", subnetwork="gpu", pods_range="gpu-pods", services_range="gpu-services"
    )
)


@pytest.fixture(scope="module")
def found(gcp: Stack, rendered: Path) -> Plan:
    return cluster_plan(with_provider(gcp, network=NETWORK, kms_key=KEY, existing_bucket=True), rendered)


def test_an_existing_vpc_is_used_and_fabrics_still_have_their_own(found: Plan) -> None:
    assert "training-vpc" not in found.named("Network")
    assert "training-rdma" in found.named("Network")
    assert not any("servicenetworking" in each.type or "router" in each.type for each in found.resources)
    cluster = found.named("Cluster")["training"]
    assert cluster["network"] == "projects/example-training/global/networks/shared"
    assert cluster["ipAllocationPolicy"] == {
        "clusterSecondaryRangeName": "gpu-pods",
        "servicesSecondaryRangeName": "gpu-services",
    }
    lustre = next(each for each in found.resources if each.type == "gcp:lustre/instance:Instance")
    assert lustre.inputs["network"] == cluster["network"]


def test_an_existing_key_encrypts_all_data_and_secrets_have_one_of_their_own(found: Plan) -> None:
    assert set(found.named("CryptoKey")) == {"training-cluster-key"}
    assert {each["nodeConfig"]["bootDiskKmsKey"] for each in found.named("NodePool").values()} == {KEY}
    lustre = next(each for each in found.resources if each.type == "gcp:lustre/instance:Instance")
    assert lustre.inputs["kmsKey"] == KEY


def test_an_existing_bucket_is_left_as_it_is_and_teams_have_their_folders(found: Plan) -> None:
    assert not found.named("Bucket")
    folders = found.named("ManagedFolder")
    assert {each["bucket"] for each in folders.values()} == {"example-training-checkpoints"}
    assert {each["name"] for each in folders.values()} == {"checkpoints/research/", "checkpoints/platform/"}


def test_an_existing_lustre_is_mounted_and_its_service_gets_no_key(gcp: Stack, rendered: Path) -> None:
    existing = ExistingManagedLustreSpec(instance="scratch", address=ADDRESS, name="data")
    lustre = ManagedLustreSpec(kind="lustre", capacity_gib=18000, zone="europe-west1-b", existing=existing)
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


def test_an_existing_share_is_mounted(gcp: Stack, rendered: Path) -> None:
    existing = ExistingFilestoreSpec(address=ADDRESS, share="vol1")
    filestore = FilestoreSpec(kind="filestore", capacity_gib=18000, existing=existing)
    found = plan(with_provider(gcp, network=NETWORK, filesystem=filestore), rendered)
    assert not any("gcp:filestore/" in each.type for each in found.resources)
    folders = [each["spec"].get("nfs") for each in found.named("PersistentVolume").values()]
    assert {"server": "10.9.8.7", "path": "/vol1/checkpoints/research"} in folders
