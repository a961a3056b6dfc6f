"""Chart values, NicClusterPolicy and pod networks of NVIDIA's Network Operator.

One NicClusterPolicy has all settings, since the operator accepts only one.
Fields and values: Mellanox/network-operator v26.4.0, deployment/network-operator, read 2026-11-21.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from infra.common import names
from infra.common.charts import Manifest
from infra.common.images import parts, split
from infra.operator_settings.network_operator import AddressPool, Link, NetworkOperatorSettings
from infra.platform.base import metadata

CHART = "network-operator"
NAMESPACE = "nvidia-network-operator"
NETWORKS: Mapping[Link, str] = {"infiniband": "ib", "ethernet": "roce"}
"""Secondary network of pods with dedicated NICs or virtual functions (catalogue: fabrics.yaml)."""
_SHARED: Mapping[Link, str] = {"infiniband": "ib_shared", "ethernet": "roce_shared"}
_LINK_TYPES: Mapping[Link, str] = {"infiniband": "infiniband", "ethernet": "ether"}
_IN_ONE_RANGE = (
    {
        "type": "tuning",
        "sysctl": {
            "net.ipv4.conf.all.arp_announce": "2",
            "net.ipv4.conf.all.arp_filter": "1",
            "net.ipv4.conf.all.arp_ignore": "1",
            "net.ipv4.conf.all.rp_filter": "0",
            "net.ipv4.conf.all.accept_local": "1",
        },
    },
    {"type": "sbr"},
)
"""CNI plugins chained after a virtual function's, so that eight interfaces of a pod in one IP range each
answer for their own address only. Source: Oracle's configuration of RoCE NICs
(oracle-quickstart/oci-hpc-oke, branch vf)."""
IPOIB_NETWORK = "ipoib"
MELLANOX = "15b3"
"""PCI vendor ID of NVIDIA's (Mellanox) NICs."""
SHARERS = 63
"""Maximum number of pods that share the NICs of a node (k8s-rdma-shared-dev-plugin: rdmaHcaMax)."""
_SRIOV_IMAGES = {
    "operator": "sriov-operator",
    "sriovConfigDaemon": "sriov-config-daemon",
    "sriovCni": "sriov-cni",
    "ibSriovCni": "ib-sriov-cni",
    "rdmaCni": "rdma-cni",
    "ovsCni": "ovs-cni",
    "sriovDevicePlugin": "device-plugin",
    "webhook": "sriov-webhook",
}
_WAITED_FOR = {"pulumi.com/waitFor": "jsonpath={.status.state}=ready", "pulumi.com/timeoutSeconds": "3600"}
"""Annotations that make Pulumi wait for the NicClusterPolicy: later resources need the operator's address
definitions and NIC driver.

The policy is never ready while no node has a NIC (state_ofed.go: SyncStateNotReady), so nothing waits for it
where all nodes may join later. No resource needs it there: the GPU driver's pod waits for the NIC driver's
pod of the same node (init container `mofed-validation`), and pods have no secondary networks.
"""
_HAS_NICS = "feature.node.kubernetes.io/pci-15b3.present"
"""Label of nodes on which the operator installs its driver and plugins."""
_TOLERATE_ALL = [{"operator": "Exists"}]
_SLOW_DRIVER = {"initialDelaySeconds": 30, "periodSeconds": 30}


def values(
    infiniband: NetworkOperatorSettings,
    images: Mapping[str, str],
    *,
    tolerates_all: bool = False,
    installs_nfd: bool = True,
) -> dict[str, Any]:
    """Return the chart's values: Node Feature Discovery is part of this operator."""
    operator, nfd = parts(images["operator"]), split(images["nfd"])
    found: dict[str, Any] = {
        # The chart's rule matches every NVIDIA NIC, including those of a VM's ordinary network.
        "nfd": {"enabled": installs_nfd, "deployNodeFeatureRules": infiniband.access != "functions"},
        "node-feature-discovery": {
            "image": {"repository": f"{nfd[0]}/{nfd[1]}", "tag": nfd[2]},
            **({"worker": {"tolerations": _TOLERATE_ALL}} if tolerates_all else {}),
        },
        "operator": {
            "repository": operator["repository"],
            "image": operator["image"],
            "tag": operator["version"],
            "ofedDriver": {"initContainer": {"enable": True, **parts(images["init"])}},
        },
        "sriovNetworkOperator": {"enabled": infiniband.access == "sriov"},
    }
    if infiniband.access == "sriov":
        found["sriov-network-operator"] = {
            "operator": {"resourcePrefix": "rdma"},
            "images": {key: images[name] for key, name in _SRIOV_IMAGES.items()},
        }
    return found


def images_used(infiniband: NetworkOperatorSettings, images: Mapping[str, str], node_os: str) -> list[str]:
    """Return the images that this access to the NICs needs on the nodes."""
    networks = ["cni-plugins", "multus", "nv-ipam"]
    used = {
        "shared": ["rdma-shared"],
        "hostdev": ["device-plugin", *networks],
        "sriov": [*_SRIOV_IMAGES.values(), *networks],
        "functions": ["device-plugin"],
    }[infiniband.access]
    used += [*networks, "ipoib"] if infiniband.ipoib else []
    used += networks if infiniband.access == "shared" and infiniband.interfaces else []
    # The operator appends OS and architecture to the driver's tag.
    kinds = infiniband.architectures if infiniband.installs_driver else ()
    drivers = [f"{images['doca-driver']}-{node_os}-{architecture}" for architecture in kinds]
    return [*(images[name] for name in ("operator", "init", "nfd", *used)), *drivers]


def features(infiniband: NetworkOperatorSettings) -> Iterator[Manifest]:
    """Yield the rule that finds nodes with NICs, where the chart's rule would find too many."""
    if infiniband.access == "functions":
        nics = {"device": {"op": "In", "value": list(infiniband.device_ids)}}
        nics = {"vendor": {"op": "In", "value": [MELLANOX]}, **nics}
        rule = {
            "name": "infiniband",
            "labels": {_HAS_NICS: "true"},
            "matchFeatures": [{"feature": "pci.device", "matchExpressions": nics}],
        }
        yield {
            "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
            "kind": "NodeFeatureRule",
            "metadata": metadata("infiniband", NAMESPACE),
            "spec": {"rules": [rule]},
        }


def networks(infiniband: NetworkOperatorSettings) -> Iterator[Manifest]:
    """Yield addresses, virtual functions and secondary networks, which the policy makes possible."""
    yield from (_ip_pool(pool) for pool in infiniband.pools)
    if infiniband.access == "hostdev":
        yield _host_device_network(infiniband)
    if infiniband.access == "sriov":
        yield from (_virtual_functions(device, infiniband) for device in infiniband.device_ids)
        yield _sriov_network(infiniband)
    if infiniband.access == "shared":
        nics = enumerate(infiniband.interfaces)
        yield from (_macvlan_network(index, interface, infiniband) for index, interface in nics)
    if infiniband.ipoib:
        yield _ipoib_network(*infiniband.ipoib)


def policy(
    infiniband: NetworkOperatorSettings, images: Mapping[str, str], *, tolerates_all: bool = False
) -> Manifest:
    """Return the cluster's one NicClusterPolicy, with no more than what this access needs."""
    spec: dict[str, Any] = {"tolerations": _TOLERATE_ALL} if tolerates_all else {}
    if infiniband.installs_driver:
        spec["ofedDriver"] = {
            **parts(images["doca-driver"]),
            **_environment(infiniband.driver_environment),
            # A new driver waits until its node is drained by hand, since installing it ends the node's jobs.
            "upgradePolicy": {"autoUpgrade": False},
            "startupProbe": {"initialDelaySeconds": 10, "periodSeconds": 10},
            "livenessProbe": _SLOW_DRIVER,
            "readinessProbe": _SLOW_DRIVER,
        }
    if infiniband.access == "shared":
        spec["rdmaSharedDevicePlugin"] = {**parts(images["rdma-shared"]), "config": _shared(infiniband)}
    if infiniband.access == "hostdev":
        spec["sriovDevicePlugin"] = {**parts(images["device-plugin"]), "config": _host_devices(infiniband)}
    if infiniband.access == "functions":
        spec["sriovDevicePlugin"] = {**parts(images["device-plugin"]), "config": _functions()}
    if infiniband.access in ("sriov", "hostdev") or infiniband.ipoib or infiniband.interfaces:
        spec["secondaryNetwork"] = {
            "cniPlugins": parts(images["cni-plugins"]),
            "multus": parts(images["multus"]),
            **({"ipoib": parts(images["ipoib"])} if infiniband.ipoib else {}),
        }
        spec["nvIpam"] = {**parts(images["nv-ipam"]), "enableWebhook": False}
    return {
        "apiVersion": "mellanox.com/v1alpha1",
        "kind": "NicClusterPolicy",
        "metadata": {
            **metadata("nic-cluster-policy"),
            **({"annotations": _WAITED_FOR} if infiniband.waits_for_nics else {}),
        },
        "spec": spec,
    }


def _environment(variables: Mapping[str, str]) -> dict[str, Any]:
    return {"env": [{"name": name, "value": value} for name, value in variables.items()]} if variables else {}


def _shared(infiniband: NetworkOperatorSettings) -> str:
    # The plugin's default prefix is `rdma/`.
    entry = {
        "resourceName": _SHARED[infiniband.link],
        "rdmaHcaMax": SHARERS,
        "selectors": _selectors(infiniband),
    }
    return json.dumps({"configList": [entry]})


def _selectors(infiniband: NetworkOperatorSettings) -> dict[str, Any]:
    link = _LINK_TYPES[infiniband.link]
    return {"vendors": [MELLANOX], "deviceIDs": list(infiniband.device_ids), "linkTypes": [link]}


def _host_devices(infiniband: NetworkOperatorSettings) -> str:
    selectors = {"vendors": [MELLANOX], "devices": list(infiniband.device_ids), "isRdma": True}
    entry = {"resourcePrefix": "nvidia.com", "resourceName": "hostdev", "selectors": selectors}
    return json.dumps({"resourceList": [entry]})


def _functions() -> str:
    """Use existing virtual functions without a secondary network: NCCL needs RDMA devices only."""
    selectors = {"vendors": [MELLANOX], "linkTypes": ["infiniband"], "isRdma": True}
    entry = {"resourcePrefix": "rdma", "resourceName": NETWORKS["infiniband"], "selectors": selectors}
    return json.dumps({"resourceList": [entry]})


def _ipam(pool: str | None) -> str:
    """RDMA over InfiniBand needs no addresses: ranks find each other over the pods' own network."""
    return json.dumps({"type": "nv-ipam", "poolName": pool} if pool else {})


def _ip_pool(pool: AddressPool) -> Manifest:
    gateway = {"gateway": pool.gateway} if pool.gateway else {}
    return {
        "apiVersion": "nv-ipam.nvidia.com/v1alpha1",
        "kind": "IPPool",
        "metadata": metadata(pool.name, NAMESPACE),
        "spec": {"subnet": pool.subnet, "perNodeBlockSize": pool.per_node, **gateway},
    }


def _host_device_network(infiniband: NetworkOperatorSettings) -> Manifest:
    return {
        "apiVersion": "mellanox.com/v1alpha1",
        "kind": "HostDeviceNetwork",
        "metadata": metadata(NETWORKS[infiniband.link]),
        "spec": {"networkNamespace": NAMESPACE, "resourceName": "hostdev", "ipam": _ipam(infiniband.pool)},
    }


def _virtual_functions(device: str, nics: NetworkOperatorSettings) -> Manifest:
    """One of each NIC: a pod with a fabric takes a whole node."""
    network = NETWORKS[nics.link]
    return {
        "apiVersion": "sriovnetwork.openshift.io/v1",
        "kind": "SriovNetworkNodePolicy",
        "metadata": metadata(f"{network}-{device}", NAMESPACE),
        "spec": {
            "nodeSelector": {names.FABRIC_LABEL: f"{network}-sriov"},
            "nicSelector": {"vendor": MELLANOX, "deviceID": device},
            "resourceName": network,
            "deviceType": "netdevice",
            "linkType": "ib" if nics.link == "infiniband" else "eth",
            "isRdma": True,
            "numVfs": 1,
            "priority": 90,
            **({"mtu": nics.mtu} if nics.mtu else {}),
        },
    }


def _sriov_network(infiniband: NetworkOperatorSettings) -> Manifest:
    network = NETWORKS[infiniband.link]
    is_ethernet = infiniband.link == "ethernet"
    return {
        "apiVersion": "sriovnetwork.openshift.io/v1",
        "kind": "SriovNetwork" if is_ethernet else "SriovIBNetwork",
        "metadata": metadata(network, NAMESPACE),
        "spec": {
            "networkNamespace": NAMESPACE,
            "resourceName": network,
            "linkState": "enable",
            "ipam": _ipam(infiniband.pool),
            **({"metaPlugins": ", ".join(json.dumps(each) for each in _IN_ONE_RANGE)} if is_ethernet else {}),
        },
    }


def _macvlan_network(index: int, interface: str, nics: NetworkOperatorSettings) -> Manifest:
    """An interface of the pod's on a shared NIC: RoCE is routed by its address, which the NIC must have."""
    return {
        "apiVersion": "mellanox.com/v1alpha1",
        "kind": "MacvlanNetwork",
        "metadata": metadata(f"{NETWORKS['ethernet']}-{index}"),
        "spec": {
            "networkNamespace": NAMESPACE,
            "master": interface,
            "mode": "bridge",
            "ipam": _ipam(nics.pool),
        },
    }


def _ipoib_network(interface: str, pool: str) -> Manifest:
    return {
        "apiVersion": "mellanox.com/v1alpha1",
        "kind": "IPoIBNetwork",
        "metadata": metadata(IPOIB_NETWORK),
        "spec": {"networkNamespace": NAMESPACE, "master": interface, "ipam": _ipam(pool)},
    }
