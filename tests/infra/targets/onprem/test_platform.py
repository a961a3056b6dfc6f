"""The vendors' operators on premises: their settings, their order, and the resources that pods request."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import catalog
from catalog import fabric_lint
from infra.common.artifacts import ROOT, Artifacts
from infra.common.images import with_images
from infra.operator_settings.gpu_operator import GpuOperatorSettings
from infra.operator_settings.network_operator import AddressPool, Link, NetworkOperatorSettings, NicAccess
from infra.operator_settings.node_software import Mirror, NodeSoftwareSettings
from infra.platform.node_software.gpu_operator import values as gpu_values
from infra.platform.node_software.network_operator import images_used, networks, policy
from infra.platform.node_software.network_operator import values as network_values
from infra.stackfile import Stack
from infra.targets.onprem.stackfile.validators import OLDEST_GPU_DRIVER
from tests.infra.golden import assert_golden
from tests.infra.plan import Plan, artifacts, plan
from tests.infra.shown import blocks_of
from tests.infra.targets.onprem.stacks import on_infiniband
from tests.tables import table
from trainyard_train.parallelism.accelerators import OLDEST_DRIVERS

POOL = AddressPool("cards", "192.168.0.0/20", 16, None)


@pytest.fixture(scope="module")
def pinned(rendered: Path) -> Artifacts:
    return artifacts(rendered)


@pytest.fixture(scope="module")
def sriov_plan(mixed: Stack, rendered: Path) -> Plan:
    return plan(on_infiniband(mixed, "ib-sriov", pool="storage"), rendered)


def nics(access: NicAccess, **more: Any) -> NetworkOperatorSettings:
    return NetworkOperatorSettings(access, ("1021", "1023"), installs_driver=True, **more)


def node_pod(found: Plan, runtime: str) -> dict[str, Any]:
    spec = found.named("ClusterTrainingRuntime")[runtime]["spec"]["template"]["spec"]
    template: dict[str, Any] = spec["replicatedJobs"][0]["template"]["spec"]["template"]
    return template


@pytest.mark.parametrize(("access", "parts"), table(__file__)["policies"])
def test_the_one_policy_has_what_the_access_needs_and_no_more(
    access: NicAccess, parts: list[str], pinned: Artifacts
) -> None:
    images = pinned.published["network-operator"].images
    assert set(policy(nics(access), images)["spec"]) == {*parts}
    ipoib = policy(nics(access, ipoib=("ibs3f0", "cards")), images)["spec"]
    assert set(ipoib) == {*parts} | {"secondaryNetwork", "nvIpam"}
    assert "ipoib" in ipoib["secondaryNetwork"]


@pytest.mark.parametrize(("link", "prefix"), [("infiniband", "ib"), ("ethernet", "roce")])
@pytest.mark.parametrize("access", ["shared", "hostdev", "sriov"])
def test_pods_request_the_resource_of_the_device_plugin(
    access: NicAccess, link: Link, prefix: str, pinned: Artifacts
) -> None:
    images = pinned.published["network-operator"].images
    infiniband = nics(access, link=link)
    spec = policy(infiniband, images)["spec"]
    if access == "shared":
        (entry,) = json.loads(spec["rdmaSharedDevicePlugin"]["config"])["configList"]
        assert entry["selectors"]["linkTypes"] == ["ether" if link == "ethernet" else "infiniband"]
        offered = f"rdma/{entry['resourceName']}"
    elif access == "hostdev":
        (entry,) = json.loads(spec["sriovDevicePlugin"]["config"])["resourceList"]
        offered = f"{entry['resourcePrefix']}/{entry['resourceName']}"
    else:
        functions = [each for each in networks(infiniband) if each["kind"] == "SriovNetworkNodePolicy"]
        assert [each["spec"]["nicSelector"]["deviceID"] for each in functions] == ["1021", "1023"]
        assert {each["spec"]["linkType"] for each in functions} == {"eth" if link == "ethernet" else "ib"}
        assert {*functions[0]["spec"]["nodeSelector"].values()} == {f"{prefix}-sriov"}
        of_ours = network_values(infiniband, images)["sriov-network-operator"]["operator"]["resourcePrefix"]
        offered = f"{of_ours}/{functions[0]['spec']['resourceName']}"
    assert list(catalog.fabric(f"{prefix}-{access}").resources) == [offered]


@pytest.mark.parametrize(("link", "access", "kind"), table(__file__)["networks"])
def test_pods_have_an_interface_for_each_nic_on_the_network(link: Link, access: NicAccess, kind: str) -> None:
    made = [each for each in networks(nics(access, link=link)) if each["kind"].endswith("Network")]
    (network,) = made
    assert network["kind"] == kind
    name = f"{network['spec']['networkNamespace']}/{network['metadata']['name']}"
    fabric = catalog.fabric(f"{'roce' if link == 'ethernet' else 'ib'}-{access}")
    assert set(fabric.attachments) == {name}
    assert len(fabric.attachments) == next(iter(fabric.resources.values()))


def test_pods_that_share_roce_nics_have_an_address_on_each(pinned: Artifacts) -> None:
    """RoCE needs addresses, and pods do not have those of the node."""
    interfaces = tuple(f"ens{index}np0" for index in range(8))
    shared = nics("shared", link="ethernet", interfaces=interfaces, pools=(POOL,), pool="cards")
    made = [each for each in networks(shared) if each["kind"] == "MacvlanNetwork"]
    assert [each["spec"]["master"] for each in made] == list(interfaces)
    assert {json.loads(each["spec"]["ipam"])["poolName"] for each in made} == {"cards"}
    names = tuple(f"{each['spec']['networkNamespace']}/{each['metadata']['name']}" for each in made)
    assert catalog.fabric("roce-shared").attachments == names
    images = pinned.published["network-operator"].images
    assert {"secondaryNetwork", "nvIpam"} <= set(policy(shared, images)["spec"])
    assert set(images_used(shared, images, "ubuntu24.04")) >= {images["multus"], images["nv-ipam"]}


def test_virtual_functions_of_one_range_answer_arp_only_for_themselves() -> None:
    """Of eight interfaces in one range any would answer for the others; a chained plugin prevents that."""
    made = list(networks(nics("sriov", link="ethernet", mtu=4220, pools=(POOL,), pool="cards")))
    functions, network = made[-2], made[-1]
    assert functions["spec"]["mtu"] == 4220
    tuning, routes = json.loads(f"[{network['spec']['metaPlugins']}]")
    assert tuning["sysctl"]["net.ipv4.conf.all.arp_ignore"] == "1"
    assert routes == {"type": "sbr"}
    of_infiniband = list(networks(nics("sriov", pools=(POOL,), pool="cards")))
    assert not any({"mtu", "metaPlugins"} & each["spec"].keys() for each in of_infiniband)


def test_nccl_gets_the_ethernet_settings_of_the_stack_file(mixed: Stack, rendered: Path) -> None:
    asked: dict[str, Any] = {"link": "ethernet", "pool": "storage", "traffic_class": 41, "gid_index": 3}
    found = plan(on_infiniband(mixed, "roce-sriov", ipoib=None, **asked), rendered)
    template = node_pod(found, "torch-roce-sriov")
    (container,) = template["spec"]["containers"]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    names = ("NCCL_IB_TC", "NCCL_IB_GID_INDEX", "NCCL_IB_DISABLE")
    assert [variables[name] for name in names] == ["41", "3", "0"]
    assert container["resources"]["limits"]["rdma/roce"] == 8
    asked_for = template["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"].split(",")
    assert asked_for == ["nvidia-network-operator/roce"] * 8
    assert list(fabric_lint.pod(template["spec"], 2, "roce-sriov", template)) == []


def test_addresses_are_assigned_only_if_an_address_pool_is_named() -> None:
    with_pool = list(networks(nics("sriov", pools=(POOL,), pool="cards")))
    without = list(networks(nics("sriov")))
    assert with_pool[0]["kind"] == "IPPool"
    assert json.loads(with_pool[-1]["spec"]["ipam"]) == {"type": "nv-ipam", "poolName": "cards"}
    assert json.loads(without[-1]["spec"]["ipam"]) == {}


def test_pods_and_networks_of_virtual_functions_are_the_golden_ones(sriov_plan: Plan) -> None:
    template = node_pod(sriov_plan, "torch-ib-sriov")
    assert list(fabric_lint.pod(template["spec"], 2, "ib-sriov", template)) == []
    kinds = ("torch-ib-sriov", "Release", "NicClusterPolicy", "IPPool", "SriovIBNetwork")
    assert_golden(blocks_of(sriov_plan, *kinds), "sriov-onprem")


@pytest.mark.parametrize("installs", [True, False])
def test_the_gpu_driver_builds_against_the_driver_of_the_nics(installs: bool, pinned: Artifacts) -> None:
    infiniband = NetworkOperatorSettings("shared", ("1021",), installs_driver=installs)
    software = NodeSoftwareSettings(network_operator=infiniband)
    operator = GpuOperatorSettings(installs_driver=True, has_service_monitor=False)
    images = pinned.published["gpu-operator"].images
    rdma = gpu_values(operator, software, images, installs_nfd=False)["driver"]["rdma"]
    assert rdma == {"enabled": True, "useHostMofed": not installs}


def test_every_driver_that_is_named_runs_the_cuda_of_the_locked_pytorch() -> None:
    lock = (ROOT / "requirements/training.txt").read_text()
    (major,) = re.findall(r"(?m)^cuda-toolkit==(\d+)\.", lock)
    assert OLDEST_DRIVERS[int(major)] == OLDEST_GPU_DRIVER
    pinned_driver = Artifacts.from_environment().published["gpu-operator"].images["driver"]
    named = {pinned_driver: re.findall(r":(\d+)\.", pinned_driver)}
    for page in (ROOT / "docs").glob("*.md"):
        lines = [line for line in page.read_text().splitlines() if "river" in line]
        named[page.name] = re.findall(r"\b([4-9]\d\d)\.\d{2,3}(?:\.\d+)?\b", "".join(lines))
    assert named[pinned_driver] and named["onprem.md"]
    assert {name: each for name, each in named.items() if any(int(n) < OLDEST_GPU_DRIVER for n in each)} == {}


@pytest.mark.parametrize("fabric", ["ib-shared", "ib-sriov", "ib-hostdev", "roce-shared", "roce-sriov"])
def test_the_lint_refuses_pods_without_the_nics(fabric: str) -> None:
    pod = {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 8}}}]}
    fault, *_ = fabric_lint.pod(pod, 2, fabric)
    assert next(iter(catalog.fabric(fabric).resources)) in fault.allowed


def test_an_image_on_the_mirror_is_not_renamed() -> None:
    mirror = Mirror("registry.example.com/mirror", "oci://registry.example.com/charts")
    assert mirror.image("registry.example.com/own:1") == "registry.example.com/own:1"
    assert mirror.image("nvcr.io/a:1") == "registry.example.com/mirror/nvcr.io/a:1"


def test_images_are_found_wherever_pods_are() -> None:
    pod = {"initContainers": [{"image": "a"}], "containers": [{"name": "x"}, {"image": "b"}]}
    manifest = {"kind": "Any", "spec": {"jobs": [{"template": {"spec": pod}}], "image": "not a container's"}}
    moved = with_images(manifest, lambda image: f"mirror/{image}")
    assert moved["spec"]["jobs"][0]["template"]["spec"] == {
        "initContainers": [{"image": "mirror/a"}],
        "containers": [{"name": "x"}, {"image": "mirror/b"}],
    }
    assert moved["spec"]["image"] == "not a container's"


def test_a_drivers_image_is_tagged_by_its_operating_system(pinned: Artifacts) -> None:
    images = pinned.published["network-operator"].images
    used = images_used(nics("shared"), images, "rhel9.4")
    assert [each for each in used if "doca-driver" in each] == [f"{images['doca-driver']}-rhel9.4-amd64"]


def test_the_toolkit_finds_the_containerd_of_the_distribution(pinned: Artifacts) -> None:
    operator = GpuOperatorSettings(True, False, "rke2")
    images = pinned.published["gpu-operator"].images
    toolkit = gpu_values(operator, NodeSoftwareSettings(), images, installs_nfd=False)["toolkit"]
    assert [each["value"] for each in toolkit["env"]] == ["/run/k3s/containerd/containerd.sock"]


def test_what_the_cluster_has_already_is_not_made_again(
    mixed: Stack, mixed_plan: Plan, rendered: Path
) -> None:
    asked = {"node_feature_discovery": "existing", "existing_objects": ("StorageClass nfs",)}
    target = mixed.target.model_copy(update=asked)
    found = plan(mixed.model_copy(update={"target": target}), rendered)
    for each, has_it in ((mixed_plan, True), (found, False)):
        values = [release["values"].get("nfd", {}) for release in each.named("Release").values()]
        assert any(nfd.get("enabled") for nfd in values) == has_it
        assert ("nfs" in each.named("StorageClass")) == has_it
        assert any("node-feature-discovery:" in str(each.inputs) for each in each.resources) == has_it
