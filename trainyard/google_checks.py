"""What a project of Google Cloud must have before `up`: asked as the user, changing nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx

from infra.errors import Problem
from infra.providers.gcp.groups import Group, groups
from infra.spec import Stack
from infra.spec.gcp import GcpSpec
from trainyard.google import Google, RefusedError

COMPUTE = "https://compute.googleapis.com/compute/v1"
APIS = ("compute", "container", "cloudkms", "storage", "iam", "cloudresourcemanager", "servicenetworking")
"""Those that every stack needs; the filesystem's own comes on top."""
FILESYSTEMS = {"lustre": "lustre", "filestore": "file"}
RIGHTS = (
    "compute.firewalls.create",
    "compute.networks.create",
    "compute.routers.create",
    "compute.subnetworks.create",
    "container.clusters.create",
    "cloudkms.cryptoKeys.create",
    "cloudkms.cryptoKeys.setIamPolicy",
    "cloudkms.keyRings.create",
    "iam.serviceAccounts.actAs",
    "iam.serviceAccounts.create",
    "resourcemanager.projects.setIamPolicy",
    "servicenetworking.services.addPeering",
    "storage.buckets.create",
)
"""Of the roles in docs/gcp.md, the rights without which an `up` ends half-way."""
ACCELERATORS = {"l4": "NVIDIA_L4_GPUS", "a100": "NVIDIA_A100_GPUS"}
SPOT_ACCELERATORS = {
    **{model: f"PREEMPTIBLE_{metric}" for model, metric in ACCELERATORS.items()},
    "h100": "PREEMPTIBLE_NVIDIA_H100_GPUS",
}
"""Model → quota of the region. Compute tells none for newer ones (H200, B200, TPUs): the console does."""
CPUS = {"e2": "CPUS", "n2": "N2_CPUS", "c3": "C3_CPUS"}
"""Series of machines → quota of the region, where it is known."""
NETWORKS_OF_FABRIC = {"tcpxo": 8, "roce": 2}


def problems(stack: Stack, spec: GcpSpec, google: Google) -> Iterator[Problem]:
    """Find what the project lacks. Raises RefusedError where it cannot be asked."""
    project = google.ask("GET", f"https://cloudresourcemanager.googleapis.com/v1/projects/{spec.project}")
    if project["projectNumber"] != spec.project_number:
        fix = "write the number that `gcloud projects describe` shows"
        yield Problem("provider.project_number", spec.project_number, project["projectNumber"], fix)
    yield from _apis(spec, google)
    yield from _rights(spec, google)
    bought = [group for pool in stack.pools for group in groups(pool, spec.zones)]
    yield from _offered(bought, spec, google)
    yield from _quotas(stack, bought, spec, google)
    yield from _reservations(stack, spec, google)
    yield from _bucket(stack, spec, google)


def _apis(spec: GcpSpec, google: Google) -> Iterator[Problem]:
    needed = {f"{name}.googleapis.com" for name in (*APIS, FILESYSTEMS[spec.filesystem.kind])}
    names = [f"projects/{spec.project_number}/services/{name}" for name in sorted(needed)]
    url = f"https://serviceusage.googleapis.com/v1/projects/{spec.project_number}/services:batchGet"
    answer = google.ask("GET", url, None, names=names)
    enabled = {each["config"]["name"] for each in answer["services"] if each["state"] == "ENABLED"}
    if off := sorted(needed - enabled):
        fix = f"gcloud services enable {' '.join(off)} --project {spec.project}"
        yield Problem("APIs of the project", f"{', '.join(off)}: off", "on", fix)


def _rights(spec: GcpSpec, google: Google) -> Iterator[Problem]:
    wanted = [*RIGHTS, f"{FILESYSTEMS[spec.filesystem.kind]}.instances.create"]
    url = f"https://cloudresourcemanager.googleapis.com/v1/projects/{spec.project}:testIamPermissions"
    has = google.ask("POST", url, {"permissions": wanted}).get("permissions", [])
    if lacking := sorted(set(wanted) - set(has)):
        fix = "ask for the roles that docs/gcp.md lists"
        yield Problem("rights of who signs in", f"not {', '.join(lacking)}", "all of these", fix)


def _offered(bought: Sequence[Group], spec: GcpSpec, google: Google) -> Iterator[Problem]:
    asked: dict[tuple[str, str], bool] = {}
    for group in bought:
        name = group.machine.name
        for zone in group.zones:
            url = f"{COMPUTE}/projects/{spec.project}/zones/{zone}/machineTypes/{name}"
            if (zone, name) not in asked:
                asked[zone, name] = google.find(url) is not None
        lacking = [zone for zone in group.zones if not asked[zone, name]]
        if lacking:
            fix = f"choose a zone of `gcloud compute machine-types list --filter=name={name}`"
            path = f"pools[{group.pool.name}].zones"
            yield Problem(path, f"{name} in {', '.join(lacking)}", "a zone that offers it", fix)


def _quotas(stack: Stack, bought: Sequence[Group], spec: GcpSpec, google: Google) -> Iterator[Problem]:
    project = f"{COMPUTE}/projects/{spec.project}"
    of_region = google.ask("GET", f"{project}/regions/{spec.region}")["quotas"]
    yield from _short(_needed(bought), of_region, spec.region)
    if spec.network.existing is None:
        fabrics = {pool.fabric for pool in stack.pools}
        networks = 1 + sum(NETWORKS_OF_FABRIC.get(fabric, 0) for fabric in fabrics)
        yield from _short({"NETWORKS": networks}, google.ask("GET", project)["quotas"], spec.project)


def _needed(bought: Sequence[Group]) -> Counter[str]:
    """What the region must still have, by quota; what is reserved was counted when it was reserved."""
    needed: Counter[str] = Counter()
    for group in bought:
        pool = group.pool
        if pool.capacity == "reserved":
            continue
        if pool.accelerator is None:
            quota = CPUS.get(group.machine.name.partition("-")[0])
            amount = group.num_nodes * group.machine.vcpus
        else:
            quota = (SPOT_ACCELERATORS if pool.is_spot else ACCELERATORS).get(pool.accelerator.model)
            amount = group.num_nodes * pool.accelerator.count
        if quota:
            needed[quota] += amount
    return needed


def _short(needed: Mapping[str, int], quotas: Sequence[Mapping[str, Any]], where: str) -> Iterator[Problem]:
    free = {each["metric"]: each["limit"] - each["usage"] for each in quotas}
    for metric, amount in needed.items():
        if free.get(metric, 0) < amount:
            fix = f"ask for more: IAM & Admin > Quotas, {metric} of {where}"
            yield Problem(
                f"quota: {metric}", f"{amount} are needed", f"{free.get(metric, 0):g} are free", fix
            )


def _reservations(stack: Stack, spec: GcpSpec, google: Google) -> Iterator[Problem]:
    for pool in stack.pools:
        if pool.reservation is None:
            continue
        path, name = f"pools[{pool.name}].reservation.id", pool.reservation.id.partition("/")[0]
        zones = pool.zones or spec.zones
        urls = [f"{COMPUTE}/projects/{spec.project}/zones/{zone}/reservations/{name}" for zone in zones]
        there = [found for url in urls if (found := google.find(url)) is not None]
        if not there:
            fix = "correct the name or the zone; one that another project shares is not looked for"
            yield Problem(path, f"{name}: not in {', '.join(zones)}", "a reservation", fix)
            continue
        reserved = [each["specificReservation"] for each in there if "specificReservation" in each]
        machines = {each["instanceProperties"]["machineType"] for each in reserved}
        free = sum(int(each["count"]) - int(each.get("inUseCount", 0)) for each in reserved)
        if reserved and machines != {pool.machine}:
            got = f"a reservation of {', '.join(sorted(machines))}"
            yield Problem(path, got, str(pool.machine), "name one of the pool's machine")
        elif reserved and free < pool.num_nodes:
            fix = "lower num_nodes, or reserve more; nodes that the stack has already are counted as used"
            yield Problem(path, f"{free} machines are free", f"{pool.num_nodes} for the pool", fix)


def _bucket(stack: Stack, spec: GcpSpec, google: Google) -> Iterator[Problem]:
    name, path = stack.storage.object_store.bucket, "storage.object_store.bucket"
    someone = Problem(
        path, f"{name} is someone else's", "a free name", "choose another: it is one for the whole world"
    )
    try:
        there = google.find(f"https://storage.googleapis.com/storage/v1/b/{name}")
    except RefusedError as error:
        if error.status != httpx.codes.FORBIDDEN:
            raise
        yield someone
        return
    if there is not None and there["projectNumber"] != spec.project_number:
        yield someone
    elif there is None and spec.existing_bucket:
        fix = "correct the name, or put existing_bucket off, and it is made"
        yield Problem(path, f"{name} is not there", "a bucket of yours", fix)
