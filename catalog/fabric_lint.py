"""The fabric lint: finds settings of pods, TrainJobs and stacks that leave the fabric unused or break it: too
few devices, no ResourceClaim, interface or shared memory, variables, pools of several fabrics or zones.

One implementation for the spec's validators, the command line, tests of the platform, and the policies. Input
may be any mapping; one that raises an error for unknown values lets the caller fail closed. What it compares
is the row of the fabric class, which the admission policies and the hook of pods (check_fabric.sh) read too.

Sources: AWS EKS user guide, "Run machine learning training on Amazon EKS with Elastic Fabric Adapter" (a host
path to /dev/infiniband hides the devices from libfabric; ranks with EFA's settings but no device use TCP);
NCCL user guide, environment variables and "Shared memory".
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from catalog import store
from catalog.schema import Fabric

KeyPath = tuple[str | int, ...]

DEVICE_PATH = "/dev/infiniband"
SETTINGS: Mapping[str, str] = {
    "FI_PROVIDER": "vpc.amazonaws.com/efa",
    "FI_EFA_USE_DEVICE_RDMA": "vpc.amazonaws.com/efa",
    "NCCL_NET_PLUGIN=ofi": "vpc.amazonaws.com/efa",
    "NCCL_IB_HCA": "rdma/*",
    "NCCL_IB_DISABLE=0": "rdma/*",
}
"""Environment variable (or variable and value) that needs a device → the resource that provides the
device."""
FABRIC_LABEL = "trainyard.dev/fabric"
SIMULATED_LABEL = "trainyard.dev/simulated"
HOST_DEVICE = "nvidia.com/hostdev"
"""Resource of a node's NIC that is moved into the pod (NVIDIA Network Operator)."""
DEVICES = ("vpc.amazonaws.com/efa", "rdma/*", HOST_DEVICE)
GKE_INTERFACES, MULTUS_NETWORKS = "networking.gke.io/interfaces", "k8s.v1.cni.cncf.io/networks"
"""Annotations of a pod with the networks of its further interfaces: of GKE in JSON, of Multus as a list."""
DEVICES_CLAIM, NVLINK_CLAIM = "fabric", "nvlink"
_CLAIMS: Mapping[str, str] = {DEVICES_CLAIM: "claim", NVLINK_CLAIM: "nvlink_domain"}
"""Name of a pod's claim → field of the fabric class that requires the claim: devices, or an NVLink
channel."""


@dataclass(frozen=True)
class Fault:
    """A setting with which ranks would use TCP, or not connect at all."""

    path: KeyPath
    got: str
    allowed: str
    fix: str

    @property
    def where(self) -> str:
        """The path as text: `containers[0].env[2].name`."""
        return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path).lstrip(".")


def pod(
    spec: Mapping[str, Any],
    num_nodes: int = 1,
    fabric: str = "",
    template: Mapping[str, Any] | None = None,
) -> Iterator[Fault]:
    """Evaluate a pod's spec that runs on so many nodes; paths start at the spec.

    Args:
        spec: the pod's spec.
        num_nodes: number of nodes of its job.
        fabric: class that it is made for, where its node selector names none.
        template: the pod or template that has this spec, with its annotations.
    """
    selector = spec.get("nodeSelector") or {}
    if selector.get(SIMULATED_LABEL):
        return
    fabric = str(selector.get(FABRIC_LABEL) or fabric)
    claimed = {
        each.get("name"): each.get("resourceClaimTemplateName") for each in spec.get("resourceClaims") or ()
    }
    shared, uses_fabric = _shared_memory(spec), False
    for index, container in enumerate(spec.get("containers") or ()):
        resources = container.get("resources") or {}
        limits = resources.get("limits") or {}
        path: KeyPath = ("containers", index)
        yield from _settings_without_device(container, limits, path, fabric)
        if not any(_number(limits.get(name)) for name in store.accelerator_resources()):
            continue
        if num_nodes > 1 and not _asks_for_tcp(container):
            uses_fabric = True
            yield from _too_few_devices(limits, fabric, num_nodes, (*path, "resources"))
            names = [claimed.get(each.get("name")) for each in resources.get("claims") or ()]
            yield from _missing_claims(names, claims(fabric).values(), fabric, (*path, "resources"))
            yield from _refused_settings(container, fabric, path)
        if any(_has(limits, device) for device in DEVICES):
            yield from _missing_shared_memory(container, path, shared)
    if uses_fabric:
        yield from _missing_interfaces(template or {}, fabric)
        yield from _missing_daemon(spec, fabric)
    yield from _host_paths(spec)


def train_job(spec: Mapping[str, Any]) -> Iterator[Fault]:
    """Evaluate the spec of a TrainJob: its resources replace its runtime's."""
    trainer = spec.get("trainer") or {}
    fabric = str((spec.get("runtimeRef") or {}).get("name", "")).partition("-")[2]
    num_nodes = trainer.get("numNodes") or 1
    if num_nodes < 2 or _asks_for_tcp(trainer):
        return
    yield from _refused_settings(trainer, fabric, ("trainer",))
    resources = trainer.get("resourcesPerNode") or {}
    limits = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    if limits:
        path: KeyPath = ("trainer", "resourcesPerNode")
        yield from _too_few_devices(limits, fabric, num_nodes, path)
        names = [each.get("name") for each in resources.get("claims") or ()]
        yield from _missing_claims(names, claims(fabric), fabric, path)


def stack(spec: Mapping[str, Any]) -> Iterator[Fault]:
    """Evaluate a cluster's spec as plain data: pools and queues."""
    pools = {pool["name"]: pool for pool in spec.get("pools") or ()}
    for index, pool in enumerate(pools.values()):
        if _fabric(pool) == "tcp":
            continue
        zones = pool.get("zones") or (spec.get("target") or {}).get("zones") or ()
        if len(zones) > 1:
            fix = "give the pool one zone; for more zones, more pools, each with a queue"
            allowed = f"one zone: {_fabric(pool)} does not cross zones"
            yield Fault(("pools", index, "zones"), ", ".join(zones), allowed, fix)
    for index, queue in enumerate(spec.get("queues") or ()):
        named = [flavor["pool"] for flavor in queue.get("flavors") or () if flavor["pool"] in pools]
        if len({_fabric(pools[name]) for name in named}) > 1:
            got = ", ".join(f"{name} ({_fabric(pools[name])})" for name in named)
            allowed = "pools of one fabric class in a queue"
            yield Fault(("queues", index, "flavors"), got, allowed, "make a queue per fabric class")


def job_on_stack(job: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[Fault]:
    """Evaluate a job as plain data, with its runtime, against a cluster's pools, queues and teams."""
    if (job.get("nodes") or 1) < 2:
        return
    pools = {pool["name"]: pool for pool in spec.get("pools") or ()}
    teams = {team["name"]: team.get("queue") for team in spec.get("teams") or ()}
    queues = {queue["name"]: queue.get("flavors") or () for queue in spec.get("queues") or ()}
    runtime = str(job.get("runtime", ""))
    flavors = queues.get(job.get("queue") or teams.get(job.get("team")), ())
    reached = [pools[flavor["pool"]] for flavor in flavors if flavor["pool"] in pools]
    pool = next((pool for pool in reached if _fabric(pool) != "tcp"), None)
    if pool is None:
        return
    framework, _, fabric = runtime.partition("-")
    if fabric != _fabric(pool):
        got = f"{runtime} on pool {pool['name']} ({_fabric(pool)})"
        fix = "a runtime of another class leaves the fabric unused"
        yield Fault(("runtime",), got, f"{framework}-{_fabric(pool)}", fix)
    whole, asked = _count(pool), job.get("gpus") or 1
    if asked < whole:
        got = f"{asked} of {whole} accelerators of pool {pool['name']}"
        allowed = f"{whole}: the fabric's devices are allocated with them"
        fix = "a pod with a fabric takes a whole node: request all accelerators, and fewer nodes"
        yield Fault(("gpus",), got, allowed, fix)


def _too_few_devices(
    limits: Mapping[str, Any], fabric: str, num_nodes: int, path: KeyPath
) -> Iterator[Fault]:
    for name, number in _resources(fabric).items():
        if (found := _number(limits.get(name))) < number:
            got = f"{num_nodes} nodes {f'with {found} of {name}' if found else f'without {name}'}"
            fix = "request all of the node's, as the runtime does: with fewer the job has a part of the speed"
            yield Fault((*path, "limits"), got, f"{name}: {number}", fix)


def _missing_claims(
    found: Sequence[Any], wanted: Iterable[str], fabric: str, path: KeyPath
) -> Iterator[Fault]:
    """Compare the claims of a container, by the names of claims or of their templates."""
    if missing := [each for each in wanted if each not in found]:
        got = f"claims to {', '.join(map(str, found)) or 'nothing'}, without {', '.join(missing)}"
        fix = "claim it as the runtime does: without it ranks silently use a slower path"
        yield Fault((*path, "claims"), got, f"claims to what {fabric} has", fix)


def _refused_settings(container: Mapping[str, Any], fabric: str, path: KeyPath) -> Iterator[Fault]:
    """Find variables with which ranks leave the fabric; those from a Secret are found in the pod."""
    refused = _classes()[fabric].refused if fabric in _classes() else ()
    for index, variable in enumerate(container.get("env") or () if refused else ()):
        name, value = str(variable.get("name", "")), str(variable.get("value") or "")
        for setting in refused:
            key, negated, wanted = re.split("(!?)=", setting)
            if key == name and value and (value == wanted) != bool(negated):
                allowed = f"{name}={wanted}, or none" if negated else f"another {name}, or none"
                fix = "remove the variable: with it ranks leave the fabric, or GPUDirect"
                yield Fault((*path, "env", index, "name"), f"{name}={value}", allowed, fix)


def networks(fabric: str) -> Mapping[str, Sequence[str]]:
    """Annotation of a pod → networks of the interfaces that the fabric class requires by it."""
    found = _classes().get(fabric)
    asked = (
        {GKE_INTERFACES: (*found.interfaces.values(),), MULTUS_NETWORKS: found.attachments} if found else {}
    )
    return {annotation: each for annotation, each in asked.items() if each}


def _missing_interfaces(template: Mapping[str, Any], fabric: str) -> Iterator[Fault]:
    for annotation, wanted in networks(fabric).items():
        annotations = (template.get("metadata") or {}).get("annotations") or {}
        found = Counter(re.findall(r"[\w./-]+", str(annotations.get(annotation) or "")))
        if missing := Counter(wanted) - found:
            got = f"{annotation} without {', '.join(missing)}"
            fix = "copy the annotation from the runtime: each interface is one of the fabric's NICs"
            yield Fault(("metadata", "annotations"), got, f"the {len(wanted)} networks of {fabric}", fix)


def _missing_daemon(spec: Mapping[str, Any], fabric: str) -> Iterator[Fault]:
    found = _classes().get(fabric)
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    if found and found.daemon and found.daemon.name not in [each.get("name") for each in containers]:
        fix = "copy the container from the runtime: it moves the packets of the GPUs"
        yield Fault(("initContainers",), "no daemon of the fabric", found.daemon.name, fix)


def _asks_for_tcp(container: Mapping[str, Any]) -> bool:
    """Whether a container says that it means TCP."""
    return any(
        each.get("name") == "NCCL_NET" and str(each.get("value")).lower() == "socket"
        for each in container.get("env") or ()
    )


def _settings_without_device(
    container: Mapping[str, Any], limits: Mapping[str, Any], path: KeyPath, fabric: str
) -> Iterator[Fault]:
    """Find fabric variables in a container without the device that they need.

    Devices may come by ResourceClaims instead, which `_missing_claims` compares.
    """
    claimed = claims(fabric) and not _resources(fabric)
    if _asks_for_tcp(container):
        return
    if (claimed or fabric not in _classes()) and (container.get("resources") or {}).get("claims"):
        return
    for index, variable in enumerate(container.get("env") or ()):
        name = str(variable.get("name", ""))
        pairs = [key for key in SETTINGS if key.partition("=")[0] == name]
        for key in pairs:
            _, with_value, value = key.partition("=")
            device = SETTINGS[key]
            if (not with_value or str(variable.get("value")) == value) and not _has(limits, device):
                got, allowed = f"{key} without {device}", f"{device} in resources.limits"
                yield Fault(
                    (*path, "env", index, "name"), got, allowed, "request the device, or drop the variable"
                )


def _missing_shared_memory(
    container: Mapping[str, Any], path: KeyPath, shared: Sequence[str]
) -> Iterator[Fault]:
    mounts = [mount for mount in container.get("volumeMounts") or () if mount.get("mountPath") == "/dev/shm"]  # noqa: S108
    if not any(mount.get("name") in shared for mount in mounts):
        allowed = "an emptyDir with medium Memory at /dev/shm"
        fix = "the runtime's 64 MiB are too few for NCCL's buffers"
        yield Fault((*path, "volumeMounts"), "no shared memory", allowed, fix)


def _shared_memory(spec: Mapping[str, Any]) -> list[str]:
    """Names of the volumes in memory, the node's own among them."""
    return [
        str(volume.get("name"))
        for volume in spec.get("volumes") or ()
        if (volume.get("emptyDir") or {}).get("medium") == "Memory"
        or (volume.get("hostPath") or {}).get("path") == "/dev/shm"  # noqa: S108
    ]


def _host_paths(spec: Mapping[str, Any]) -> Iterator[Fault]:
    trains = any(
        _number(((container.get("resources") or {}).get("limits") or {}).get(name))
        for container in spec.get("containers") or ()
        for name in store.accelerator_resources()
    )
    for index, volume in enumerate(spec.get("volumes") or ()) if trains else ():
        path = str((volume.get("hostPath") or {}).get("path", ""))
        if path.startswith(DEVICE_PATH):
            fix = "the folder of devices without the plugin's resource makes libfabric fall back to TCP"
            yield Fault(("volumes", index, "hostPath", "path"), path, "the device plugin's resource", fix)


def _has(limits: Mapping[str, Any], pattern: str) -> bool:
    return any(fnmatchcase(name, pattern) and _number(limits.get(name)) for name in limits)


def _number(quantity: object) -> int:
    """Return how many devices a quantity is (resource.Quantity): no text, and no fraction, is any."""
    found = re.fullmatch(r"(\d+)([kMGTPE]i?)?", str(quantity))
    return int(found[1]) * (1000 if found[2] else 1) if found else 0


def claims(fabric: str) -> dict[str, str]:
    """Name of each claim of a pod on a fabric class (Dynamic Resource Allocation) → its template."""
    found = _classes().get(fabric)
    return {name: f"{name}-{fabric}" for name, key in _CLAIMS.items() if getattr(found, key, None)}


def machine_fabric(machine: str) -> str:
    """The fabric class of a machine type of EC2; empty for one that the catalogue lacks."""
    from catalog.cloud_store import find_machine  # with the schema of machines: most callers need neither

    found = find_machine(machine, "aws")
    return found.fabric if found else ""


def _fabric(pool: Mapping[str, Any]) -> str:
    return str(pool.get("fabric") or "tcp")


def _count(pool: Mapping[str, Any]) -> int:
    return int((pool.get("accelerator") or {}).get("count") or 0)


def _resources(fabric: str) -> Mapping[str, int]:
    """Device resources of a fabric class; empty for a class that has none, or that is unknown."""
    found = _classes().get(fabric)
    return found.resources if found else {}


@cache
def _classes() -> Mapping[str, Fabric]:
    return {row.name: row for row in store.fabrics()}
