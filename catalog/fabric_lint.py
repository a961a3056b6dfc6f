"""The fabric lint: finds settings of pods, TrainJobs and stacks that leave the fabric unused or break it: no
device, ResourceClaim or shared memory, pools of several fabrics or zones, a host path to the devices.

One implementation for the spec's validators, the command line, tests of the platform, and the policies. Input
may be any mapping; one that raises an error for unknown values lets the caller fail closed.

Sources: AWS EKS user guide, "Run machine learning training on Amazon EKS with Elastic Fabric Adapter" (a host
path to /dev/infiniband hides the devices from libfabric; ranks with EFA's settings but no device use TCP);
NCCL user guide, environment variables and "Shared memory".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from catalog import store
from catalog.schema import Fabric

KeyPath = tuple[str | int, ...]

DEVICE_PATHS = ("/dev/infiniband", "/dev/aperture_devices")
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


def pod(spec: Mapping[str, Any], num_nodes: int = 1, fabric: str = "") -> Iterator[Fault]:
    """Evaluate a pod's spec that runs on so many nodes; paths start at the spec.

    `fabric` is the class that it is made for, where its node selector names none.
    """
    selector = spec.get("nodeSelector") or {}
    if selector.get(SIMULATED_LABEL):
        return
    fabric = str(selector.get(FABRIC_LABEL) or fabric)
    wanted = _resources(fabric)
    shared = _shared_memory(spec)
    for index, container in enumerate(spec.get("containers") or ()):
        limits = (container.get("resources") or {}).get("limits") or {}
        path: KeyPath = ("containers", index)
        yield from _settings_without_device(container, limits, path, fabric)
        if not any(limits.get(name) for name in store.accelerator_resources()):
            continue
        if num_nodes > 1:
            for name, number in wanted.items():
                if not _has(limits, name):
                    got = f"{num_nodes} nodes without {name}"
                    yield Fault(
                        (*path, "resources", "limits"),
                        got,
                        f"{name}: {number}",
                        "request the fabric's device",
                    )
            yield from _missing_claims(
                container.get("resources") or {}, fabric, num_nodes, (*path, "resources")
            )
        if any(_has(limits, device) for device in DEVICES):
            yield from _missing_shared_memory(container, path, shared)
    yield from _host_paths(spec)


def train_job(spec: Mapping[str, Any]) -> Iterator[Fault]:
    """Evaluate the spec of a TrainJob: its resources replace its runtime's."""
    trainer = spec.get("trainer") or {}
    resources = trainer.get("resourcesPerNode") or {}
    fabric = str((spec.get("runtimeRef") or {}).get("name", "")).partition("-")[2]
    wanted = _resources(fabric)
    limits = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    if not limits or (trainer.get("numNodes") or 1) < 2:
        return
    for name, number in wanted.items():
        if not _has(limits, name):
            got = f"{trainer.get('numNodes')} nodes without {name}"
            fix = "repeat the runtime's resources, or leave resourcesPerNode out"
            yield Fault(("trainer", "resourcesPerNode", "limits"), got, f"{name}: {number}", fix)
    yield from _missing_claims(resources, fabric, trainer["numNodes"], ("trainer", "resourcesPerNode"))


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


def _missing_claims(
    resources: Mapping[str, Any], fabric: str, num_nodes: int, path: KeyPath
) -> Iterator[Fault]:
    """Count the required claims, since a job may choose its claims' names."""
    wanted = claims(fabric)
    found = (resources.get("claims") or ()) if wanted else ()
    if len(found) < len(wanted):
        got = f"{num_nodes} nodes with {len(found)} claims"
        allowed = f"claims to what {fabric} has: {', '.join(wanted)}"
        fix = "claim it as the runtime does: without it ranks silently use a slower path"
        yield Fault((*path, "claims"), got, allowed, fix)


def _settings_without_device(
    container: Mapping[str, Any], limits: Mapping[str, Any], path: KeyPath, fabric: str
) -> Iterator[Fault]:
    """Find fabric variables in a container without the device that they need.

    Devices may come by ResourceClaims instead, which `_missing_claims` counts.
    """
    claimed = claims(fabric) and not _resources(fabric)
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
    """Names of the volumes in memory."""
    volumes = spec.get("volumes") or ()
    return [str(v.get("name")) for v in volumes if (v.get("emptyDir") or {}).get("medium") == "Memory"]


def _host_paths(spec: Mapping[str, Any]) -> Iterator[Fault]:
    trains = any(
        ((container.get("resources") or {}).get("limits") or {}).get(name)
        for container in spec.get("containers") or ()
        for name in store.accelerator_resources()
    )
    for index, volume in enumerate(spec.get("volumes") or ()) if trains else ():
        path = str((volume.get("hostPath") or {}).get("path", ""))
        if path.startswith(DEVICE_PATHS):
            fix = "the folder of devices without the plugin's resource makes libfabric fall back to TCP"
            yield Fault(("volumes", index, "hostPath", "path"), path, "the device plugin's resource", fix)


def _has(limits: Mapping[str, Any], pattern: str) -> bool:
    return any(fnmatchcase(name, pattern) and limits.get(name) for name in limits)


def claims(fabric: str) -> list[str]:
    """Names of the ResourceClaims of a pod on a fabric class (Dynamic Resource Allocation)."""
    found = _classes().get(fabric)
    return [name for name, key in _CLAIMS.items() if getattr(found, key, None)]


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
