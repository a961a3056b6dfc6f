"""NVIDIA's Network Operator: drivers of InfiniBand cards, and how pods get at them.

One NicClusterPolicy says it all, since the operator takes no second one.
Fields and values: Mellanox/network-operator v26.4.0, deployment/network-operator, read 2026-11-21.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from infra import names
from infra.charts import Manifest
from infra.operator_settings.network_operator import AddressPool, NetworkOperatorSettings
from infra.platform.base import metadata
from infra.platform.images import parts, split

CHART = "network-operator"
NAMESPACE = "nvidia-network-operator"
NETWORK = "ib"
"""Secondary network of pods that have cards or virtual functions of their own (catalogue: fabrics.yaml)."""
IPOIB_NETWORK = "ipoib"
MELLANOX = "15b3"
"""PCI vendor."""
SHARERS = 63
"""Pods that can share the cards of a node (k8s-rdma-shared-dev-plugin: rdmaHcaMax)."""
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
_AWAITED = {
    "pulumi.com/waitFor": "jsonpath={.status.state}=ready",
    "pulumi.com/timeoutSeconds": "3600",
}
"""What comes after needs what the operator brings: definitions of addresses, and the cards' driver."""
_HAS_CARDS = "feature.node.kubernetes.io/pci-15b3.present"
"""Label of nodes on which the operator puts its driver and its plugins."""
_TOLERATE_ALL = [{"operator": "Exists"}]
_SLOW_DRIVER = {"initialDelaySeconds": 30, "periodSeconds": 30}


def values(
    infiniband: NetworkOperatorSettings, images: Mapping[str, str], *, tolerates_all: bool = False
) -> dict[str, Any]:
    """Return the chart's values: Node Feature Discovery is this operator's, whoever else wants it."""
    operator, nfd = parts(images["operator"]), split(images["nfd"])
    found: dict[str, Any] = {
        # The chart's rule takes any card of NVIDIA's, also those of a virtual machine's ordinary network.
        "nfd": {"enabled": True, "deployNodeFeatureRules": infiniband.access != "functions"},
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
            "images": {place: images[name] for place, name in _SRIOV_IMAGES.items()},
        }
    return found


def images_used(infiniband: NetworkOperatorSettings, images: Mapping[str, str], node_os: str) -> list[str]:
    """Return the images that this access to the cards needs on the nodes."""
    networks = ["cni-plugins", "multus", "nv-ipam"]
    used = {
        "shared": ["rdma-shared"],
        "hostdev": ["device-plugin", *networks],
        "sriov": [*_SRIOV_IMAGES.values(), *networks],
        "functions": ["device-plugin"],
    }[infiniband.access]
    used += [*networks, "ipoib"] if infiniband.ipoib else []
    # The operator puts system and architecture at the end of the driver's tag.
    kinds = infiniband.architectures if infiniband.installs_driver else ()
    drivers = [f"{images['doca-driver']}-{node_os}-{architecture}" for architecture in kinds]
    return [*(images[name] for name in ("operator", "init", "nfd", *used)), *drivers]


def features(infiniband: NetworkOperatorSettings) -> Iterator[Manifest]:
    """Yield the rule that finds machines with cards, where the chart's own would find too many."""
    if infiniband.access == "functions":
        cards = {"device": {"op": "In", "value": list(infiniband.device_ids)}}
        cards = {"vendor": {"op": "In", "value": [MELLANOX]}, **cards}
        rule = {
            "name": "infiniband",
            "labels": {_HAS_CARDS: "true"},
            "matchFeatures": [{"feature": "pci.device", "matchExpressions": cards}],
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
        yield from (_virtual_functions(device) for device in infiniband.device_ids)
        yield _sriov_network(infiniband)
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
            # A new driver waits until its node is drained by hand: it would end the jobs there.
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
    if infiniband.access in ("sriov", "hostdev") or infiniband.ipoib:
        spec["secondaryNetwork"] = {
            "cniPlugins": parts(images["cni-plugins"]),
            "multus": parts(images["multus"]),
            **({"ipoib": parts(images["ipoib"])} if infiniband.ipoib else {}),
        }
        spec["nvIpam"] = {**parts(images["nv-ipam"]), "enableWebhook": False}
    return {
        "apiVersion": "mellanox.com/v1alpha1",
        "kind": "NicClusterPolicy",
        "metadata": {**metadata("nic-cluster-policy"), "annotations": _AWAITED},
        "spec": spec,
    }


def _shared(infiniband: NetworkOperatorSettings) -> str:
    # The plugin's own prefix is `rdma/`.
    entry = {"resourceName": "ib_shared", "rdmaHcaMax": SHARERS, "selectors": _selectors(infiniband)}
    return json.dumps({"configList": [entry]})


def _selectors(infiniband: NetworkOperatorSettings) -> dict[str, Any]:
    return {"vendors": [MELLANOX], "deviceIDs": list(infiniband.device_ids), "linkTypes": ["infiniband"]}


def _host_devices(infiniband: NetworkOperatorSettings) -> str:
    selectors = {"vendors": [MELLANOX], "devices": list(infiniband.device_ids), "isRdma": True}
    entry = {"resourcePrefix": "nvidia.com", "resourceName": "hostdev", "selectors": selectors}
    return json.dumps({"resourceList": [entry]})


def _functions() -> str:
    """As they are, without a network of their own: RDMA devices are all that NCCL needs."""
    selectors = {"vendors": [MELLANOX], "linkTypes": ["infiniband"], "isRdma": True}
    entry = {"resourcePrefix": "rdma", "resourceName": NETWORK, "selectors": selectors}
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
        "metadata": metadata(NETWORK),
        "spec": {
            "networkNamespace": NAMESPACE,
            "resourceName": "hostdev",
            "ipam": _ipam(infiniband.pool),
        },
    }


def _virtual_functions(device: str) -> Manifest:
    """One of each card: a pod takes a machine with its fabric whole."""
    return {
        "apiVersion": "sriovnetwork.openshift.io/v1",
        "kind": "SriovNetworkNodePolicy",
        "metadata": metadata(f"{NETWORK}-{device}", NAMESPACE),
        "spec": {
            "nodeSelector": {names.FABRIC_LABEL: "ib-sriov"},
            "nicSelector": {"vendor": MELLANOX, "deviceID": device},
            "resourceName": NETWORK,
            "deviceType": "netdevice",
            "linkType": "ib",
            "isRdma": True,
            "numVfs": 1,
            "priority": 90,
        },
    }


def _sriov_network(infiniband: NetworkOperatorSettings) -> Manifest:
    return {
        "apiVersion": "sriovnetwork.openshift.io/v1",
        "kind": "SriovIBNetwork",
        "metadata": metadata(NETWORK, NAMESPACE),
        "spec": {
            "networkNamespace": NAMESPACE,
            "resourceName": NETWORK,
            "linkState": "enable",
            "ipam": _ipam(infiniband.pool),
        },
    }


def _ipoib_network(interface: str, pool: str) -> Manifest:
    return {
        "apiVersion": "mellanox.com/v1alpha1",
        "kind": "IPoIBNetwork",
        "metadata": metadata(IPOIB_NETWORK),
        "spec": {"networkNamespace": NAMESPACE, "master": interface, "ipam": _ipam(pool)},
    }
