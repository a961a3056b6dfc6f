"""Adds to a pod what its fabric class needs: devices, NCCL settings, mounts, claims, checks, sidecars. Also
renders the claims' templates.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import catalog
from catalog import Claim, Fabric, HostPath, Sidecar
from catalog.fabric_lint import DEVICES_CLAIM, GKE_INTERFACES, MULTUS_NETWORKS, NVLINK_CLAIM, claims
from infra.common.charts import Manifest
from infra.platform.base import RESTRICTED_CONTAINER, metadata
from infra.platform.programs import on_fabric, program

_MEMORY = {"name": "shared-memory", "emptyDir": {"medium": "Memory"}}
_MEMORY_MOUNT = {"name": "shared-memory", "mountPath": "/dev/shm"}  # noqa: S108 -- where NCCL looks for it
_SETTINGS = "nccl-settings"
_SETTINGS_FOLDER = "/run/nccl"
_SETTINGS_FILE = "nccl.conf"
_TOPOLOGY = "nccl-topology"
_TOPOLOGY_FOLDER = "/etc/nccl-topology"
TOPOLOGY_FILE = "topology.xml"
_NCCL_CONF = "/etc/nccl.conf"
"""Path from which NCCL reads variables, for every process and environment."""
FABRIC_SIGNAL = 64
"""Signal that ends ranks which would leave the fabric: SIGRTMAX, which no framework handles and no other
fault sends."""


def resources(fabric: str, accelerators: int) -> dict[str, int | str]:
    """Return the limits of a pod with so many accelerators; with a fabric these are a whole node's."""
    found = catalog.fabric(fabric)
    return {found.accelerator_resource: accelerators, **found.pod_resources}


def environment(fabric: str) -> dict[str, str]:
    """Return the variables that NCCL needs to find the fabric."""
    found = catalog.fabric(fabric)
    file = {"NCCL_TOPO_FILE": f"{_TOPOLOGY_FOLDER}/{TOPOLOGY_FILE}"} if found.topology else {}
    return {**found.environment, **file}


def needs(fabric: str) -> str:
    """Return what ranks on the fabric need of their container, for check_fabric.sh, and what NCCL must find
    there, for the training package; empty: nothing.
    """
    found = catalog.fabric(fabric)
    provided = {each: (found.num_nics or 1) if "uverbs" in each else 1 for each in found.node_files}
    provided |= {f"/sys/class/net/{name}": 1 for name in found.interfaces}
    if found.attachments:
        provided["/sys/class/net/net*"] = len(found.attachments)  # as Multus names them, net1 and so on
    if found.nvlink_domain:
        provided["/dev/nvidia-caps-imex-channels/channel*"] = 1
    if not provided:
        return ""
    files = [f"{each.file}={each.package}" for each in found.image_files if each.for_ranks]
    files += [f"{pattern}={number}" for pattern, number in provided.items()]
    locked = ["locked-memory"] if found.pins_memory else []
    facts = {
        "nics": found.num_nics,
        "gbps": found.nic_gbps,
        "nvlink": found.nvlink_domain,
        "version": found.nccl,
    }
    said = [
        f"nccl:{name}={value:g}" if isinstance(value, float) else f"nccl:{name}={value}"
        for name, value in {**facts, "mismatch": found.mismatch}.items()
        if value
    ]
    return " ".join([fabric, *files, *(f"env:{each}" for each in found.refused), *locked, *said])


def pod_annotations(fabric: str) -> dict[str, str]:
    """Return the annotations of a pod: the interfaces that it is to have, and its daemon's."""
    found = catalog.fabric(fabric)
    extra = dict(found.daemon.annotations) if found.daemon else {}
    if found.attachments:
        extra[MULTUS_NETWORKS] = ",".join(found.attachments)
    if not found.interfaces:
        return extra
    asked = {"eth0": "default", **found.interfaces}
    interfaces = [{"interfaceName": name, "network": network} for name, network in asked.items()]
    return {
        "networking.gke.io/default-interface": "eth0",
        # Without spaces: admission's lists have ", " between their entries.
        GKE_INTERFACES: json.dumps(interfaces, separators=(",", ":")),
        **extra,
    }


def privileged_daemons(fabrics: Iterable[str]) -> list[tuple[Sidecar, str]]:
    """Return the daemons that Pod Security's `restricted` refuses in a job's pod, and where that is
    configured.
    """
    found = [catalog.fabric(fabric) for fabric in fabrics]
    return [(each.daemon, each.source.url) for each in found if each.daemon and each.daemon.capabilities]


def topology_name(fabric: str) -> str:
    """Name of the ConfigMap with the topology of the fabric's nodes."""
    return f"nccl-topology-{fabric}"


def host_paths(fabric: str) -> dict[str, HostPath]:
    """Paths of the node that pods on this fabric have; through claims, since Pod Security refuses them."""
    found = catalog.fabric(fabric)
    return {**found.host_paths, **(found.daemon.host_paths if found.daemon else {})}


def host_claim(path: str) -> str:
    """Name of the claim to a path of the node."""
    return f"host{path.replace('/', '-').replace('_', '-')}"


def with_fabric(pod: dict[str, Any], fabric: str, *, check: bool = True) -> dict[str, Any]:
    """Add the fabric's requirements to a pod: memory, paths, settings, devices, a daemon.

    Also add a check that the job reaches the fabric, unless the runtime is unchecked.
    """
    found = catalog.fabric(fabric)
    pod = _with_mounts(pod, found)
    pod = {**pod, "containers": [_started(each, fabric) for each in pod["containers"]]}
    if check and needs(fabric):
        pod = {**pod, "containers": [_checked(each, fabric) for each in pod["containers"]]}
    if found.setup:
        pod = _with_settings(pod, found)
    if found.topology:
        pod = _with_topology(pod, fabric)
    if claims(fabric):
        pod = _with_resource_claims(pod, claims(fabric))
    if found.daemon:
        pod = {**pod, "initContainers": [_daemon(found.daemon), *pod.get("initContainers", [])]}
    return pod


def _with_mounts(pod: dict[str, Any], fabric: Fabric) -> dict[str, Any]:
    """Mount /dev/shm of the pod's memory size, since 64 MiB are too few for NCCL, and paths of the node."""
    mounts = [_MEMORY_MOUNT, *_mounts(fabric.host_paths)]
    volumes = [_host_volume(path, each) for path, each in host_paths(fabric.name).items()]
    return {
        **pod,
        "containers": [_mounting(container, mounts) for container in pod["containers"]],
        "volumes": [*pod["volumes"], _MEMORY, *volumes],
    }


def _host_volume(path: str, given: HostPath) -> dict[str, Any]:
    read_only = {} if given.writable else {"readOnly": True}
    return {"name": host_claim(path), "persistentVolumeClaim": {"claimName": host_claim(path), **read_only}}


def _mounts(paths: Mapping[str, HostPath]) -> list[dict[str, Any]]:
    return [
        {"name": host_claim(path), "mountPath": each.mount, **({} if each.writable else {"readOnly": True})}
        for path, each in paths.items()
    ]


def _mounting(container: dict[str, Any], mounts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {**container, "volumeMounts": [*container["volumeMounts"], *mounts]}


def _started(container: dict[str, Any], fabric: str) -> dict[str, Any]:
    """Start the runtime's own command, if it has one, as `trainyard run` starts a job's."""
    command = {"command": [*on_fabric(fabric), *container["command"]]} if "command" in container else {}
    return {**container, **command}


def _checked(container: dict[str, Any], fabric: str) -> dict[str, Any]:
    """Check each container as it starts, in whatever image and beside whatever command the job gives it.

    NCCL_NET refuses TCP as well, but not before the first communicator, and with an unspecific message.
    """
    variable = {"name": "TRAINYARD_FABRIC", "value": needs(fabric)}
    check = ["/bin/sh", "-c", program("check_fabric.sh").rstrip(), "check_fabric", str(FABRIC_SIGNAL)]
    lifecycle = {**container.get("lifecycle", {}), "postStart": {"exec": {"command": check}}}
    return {**container, "env": [*container["env"], variable], "lifecycle": lifecycle}


def _with_settings(pod: dict[str, Any], fabric: Fabric) -> dict[str, Any]:
    """Run the fabric's script before the job, and write its settings to the file that NCCL reads.

    The script comes with the plugin on the node and matches its version; a job with a custom command
    would never run it.
    """
    first = pod["containers"][0]
    file = f"{_SETTINGS_FOLDER}/{_SETTINGS_FILE}"
    script = program("write_nccl_settings.sh", setup=fabric.setup, file=file).rstrip()
    container = {
        **{key: first[key] for key in ("image", "imagePullPolicy", "env", "resources", "securityContext")},
        "name": "nccl-settings",
        "command": ["/bin/bash", "-c", script],
        "volumeMounts": [*first["volumeMounts"], {"name": _SETTINGS, "mountPath": _SETTINGS_FOLDER}],
    }
    mount = {"name": _SETTINGS, "mountPath": _NCCL_CONF, "subPath": _SETTINGS_FILE, "readOnly": True}
    return {
        **pod,
        "initContainers": [*pod.get("initContainers", []), container],
        "containers": [_mounting(each, [mount]) for each in pod["containers"]],
        "volumes": [*pod["volumes"], {"name": _SETTINGS, "emptyDir": {}}],
    }


def _with_topology(pod: dict[str, Any], fabric: str) -> dict[str, Any]:
    mount = {"name": _TOPOLOGY, "mountPath": _TOPOLOGY_FOLDER, "readOnly": True}
    return {
        **pod,
        "containers": [_mounting(each, [mount]) for each in pod["containers"]],
        "volumes": [*pod["volumes"], {"name": _TOPOLOGY, "configMap": {"name": topology_name(fabric)}}],
    }


def _with_resource_claims(pod: dict[str, Any], templates: Mapping[str, str]) -> dict[str, Any]:
    asked = [{"name": name} for name in templates]
    containers = [{**each, "resources": {**each["resources"], "claims": asked}} for each in pod["containers"]]
    made = [{"name": name, "resourceClaimTemplateName": template} for name, template in templates.items()]
    return {**pod, "containers": containers, "resourceClaims": made}


def _daemon(daemon: Sidecar) -> dict[str, Any]:
    """A sidecar: it serves before the job runs, and ends with it. It moves the GPUs' packets as root."""
    probe = {"exec": {"command": list(daemon.ready)}, "periodSeconds": 5, "failureThreshold": 24}
    allowed = {"drop": ["ALL"], "add": list(daemon.capabilities)}
    return {
        "name": daemon.name,
        "image": daemon.image,
        "imagePullPolicy": "IfNotPresent",
        "restartPolicy": "Always",
        "command": list(daemon.command),
        "env": [{"name": name, "value": value} for name, value in daemon.environment.items()],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
        **({"startupProbe": probe} if daemon.ready else {}),
        "securityContext": {
            **RESTRICTED_CONTAINER,
            "runAsUser": 0,
            "runAsNonRoot": False,
            "capabilities": allowed,
        },
        "volumeMounts": _mounts(daemon.host_paths),
    }


def resource_claims_of(fabrics: Iterable[str], namespace: str) -> Iterator[Manifest]:
    """Yield what makes the templates that a namespace's pods on these fabrics get their claims from."""
    for fabric in fabrics:
        found, templates = catalog.fabric(fabric), claims(fabric)
        if found.claim:
            yield _template(metadata(templates[DEVICES_CLAIM], namespace), found.claim)
        if found.nvlink_domain:
            yield _compute_domain(metadata(templates[NVLINK_CLAIM], namespace))


def _template(about: Mapping[str, Any], claim: Claim) -> Manifest:
    exactly = {"deviceClassName": claim.device_class, "allocationMode": "ExactCount", "count": claim.count}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": about,
        "spec": {"spec": {"devices": {"requests": [{"name": DEVICES_CLAIM, "exactly": exactly}]}}},
    }


def _compute_domain(about: Mapping[str, Any]) -> Manifest:
    """NVIDIA's driver makes the template of it, and joins the nodes that its pods are on.

    One serves all jobs of a namespace until the stack is destroyed: nodes join and leave it, and `numNodes`
    has no effect any more (dra-driver-nvidia-gpu 0.4, ComputeDomainSpec).
    """
    return {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomain",
        "metadata": about,
        "spec": {
            "numNodes": 0,
            "channel": {"resourceClaimTemplate": {"name": about["name"]}, "allocationMode": "Single"},
        },
    }
