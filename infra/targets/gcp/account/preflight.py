"""Checks the Google Cloud project before `up`: APIs, permissions, machines, quotas, reservations, existing
resources.
"""

from collections.abc import Iterator, Sequence

import httpx

from infra.clients.gcp import COMPUTE, Answer, GcpClient, GcpRefusedError
from infra.errors import Problem
from infra.stackfile import Stack
from infra.stackfile.target import minor_of
from infra.targets.account import private_endpoint_is_unreachable
from infra.targets.gcp.account.quotas import short_quotas
from infra.targets.gcp.stackfile.groups import GkePool, groups
from infra.targets.gcp.stackfile.target import ExistingManagedLustreSpec, GcpSpec

APIS = ("compute", "container", "cloudkms", "storage", "iam", "cloudresourcemanager", "servicenetworking")
"""APIs that every stack needs, besides the filesystem's."""
FILESYSTEMS = {"lustre": "lustre", "filestore": "file"}
PERMISSIONS = (
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
"""Permissions of the roles in docs/gcp.md without which an `up` fails half-way."""


def problems(stack: Stack, spec: GcpSpec, gcp: GcpClient) -> Iterator[Problem]:
    """Find what the project lacks. Raises GcpRefusedError if Google Cloud does not answer."""
    project = gcp.ask("GET", f"https://cloudresourcemanager.googleapis.com/v1/projects/{spec.project}")
    if project["projectNumber"] != spec.project_number:
        fix = "write the number that `gcloud projects describe` shows"
        yield Problem("target.project_number", spec.project_number, project["projectNumber"], fix)
    yield from _control_plane_access(stack, spec, gcp)
    yield from _apis(spec, gcp)
    yield from _permissions(spec, gcp)
    node_pools = [group for pool in stack.pools for group in groups(pool, spec.zones)]
    yield from _offered(node_pools, spec, gcp)
    yield from short_quotas(stack, node_pools, spec, gcp)
    yield from _reservations(stack, spec, gcp)
    yield from _bucket(stack, spec, gcp)
    yield from _filesystem(spec, gcp)
    yield from _cluster(spec, gcp)


def _control_plane_access(stack: Stack, spec: GcpSpec, gcp: GcpClient) -> Iterator[Problem]:
    if spec.access.dns_endpoint or spec.network.existing:
        return
    if gcp.find(_cluster_url(spec, stack.name)) is None:
        yield private_endpoint_is_unreachable("target.access.dns_endpoint", "true: IAM authorizes `up`")


def _apis(spec: GcpSpec, gcp: GcpClient) -> Iterator[Problem]:
    extra = (FILESYSTEMS[spec.filesystem.kind], *_break_glass_apis(spec))
    needed = {f"{name}.googleapis.com" for name in (*APIS, *extra)}
    names = [f"projects/{spec.project_number}/services/{name}" for name in sorted(needed)]
    url = f"https://serviceusage.googleapis.com/v1/projects/{spec.project_number}/services:batchGet"
    answer = gcp.ask("GET", url, None, names=names)
    enabled = {each["config"]["name"] for each in answer["services"] if each["state"] == "ENABLED"}
    if off := sorted(needed - enabled):
        fix = f"gcloud services enable {' '.join(off)} --project {spec.project}"
        yield Problem("APIs of the project", f"{', '.join(off)}: off", "on", fix)


def _permissions(spec: GcpSpec, gcp: GcpClient) -> Iterator[Problem]:
    makes = [] if spec.filesystem.existing else [f"{FILESYSTEMS[spec.filesystem.kind]}.instances.create"]
    emergency = [f"{api}.entitlements.create" for api in _break_glass_apis(spec)]
    spared = "container.clusters.create" if spec.existing_cluster else ""
    wanted = [*(each for each in PERMISSIONS if each != spared), *makes, *emergency]
    url = f"https://cloudresourcemanager.googleapis.com/v1/projects/{spec.project}:testIamPermissions"
    has = gcp.ask("POST", url, {"permissions": wanted}).get("permissions", [])
    if lacking := sorted(set(wanted) - set(has)):
        fix = "ask for the roles that docs/gcp.md lists"
        yield Problem("IAM permissions of the caller", f"not {', '.join(lacking)}", "all of these", fix)


def _break_glass_apis(spec: GcpSpec) -> list[str]:
    return ["privilegedaccessmanager"] if spec.access.break_glass else []


def _offered(node_pools: Sequence[GkePool], spec: GcpSpec, gcp: GcpClient) -> Iterator[Problem]:
    asked: dict[tuple[str, str], bool] = {}
    for group in node_pools:
        name = group.machine.name
        for zone in group.zones:
            url = f"{COMPUTE}/projects/{spec.project}/zones/{zone}/machineTypes/{name}"
            if (zone, name) not in asked:
                asked[zone, name] = gcp.find(url) is not None
        lacking = [zone for zone in group.zones if not asked[zone, name]]
        if lacking:
            fix = f"choose a zone of `gcloud compute machine-types list --filter=name={name}`"
            path = f"pools[{group.pool.name}].zones"
            yield Problem(path, f"{name} in {', '.join(lacking)}", "a zone that offers it", fix)


def _reservations(stack: Stack, spec: GcpSpec, gcp: GcpClient) -> Iterator[Problem]:
    for pool in stack.pools:
        if pool.reservation is None:
            continue
        path, name = f"pools[{pool.name}].reservation.id", pool.reservation.id.partition("/")[0]
        zones = pool.zones or spec.zones
        urls = [f"{COMPUTE}/projects/{spec.project}/zones/{zone}/reservations/{name}" for zone in zones]
        there = [found for url in urls if (found := gcp.find(url)) is not None]
        if not there:
            fix = "correct the name or the zone; reservations that other projects share are not checked"
            yield Problem(path, f"{name}: not in {', '.join(zones)}", "a reservation", fix)
            continue
        reserved = [each["specificReservation"] for each in there if "specificReservation" in each]
        machines = {each["instanceProperties"]["machineType"] for each in reserved}
        free = sum(int(each["count"]) - int(each.get("inUseCount", 0)) for each in reserved)
        if reserved and machines != {pool.machine}:
            got = f"a reservation of {', '.join(sorted(machines))}"
            yield Problem(path, got, str(pool.machine), "name one of the pool's machine")
        elif reserved and free < pool.num_nodes:
            fix = "lower `nodes`, or reserve more; nodes that the stack has already are counted as used"
            yield Problem(path, f"{free} machines are free", f"{pool.num_nodes} for the pool", fix)


def _bucket(stack: Stack, spec: GcpSpec, gcp: GcpClient) -> Iterator[Problem]:
    name, path = stack.storage.object_store.bucket, "storage.object_store.bucket"
    name_taken = Problem(
        path,
        f"{name} belongs to another owner",
        "an unused name",
        "choose another: bucket names are globally unique",
    )
    try:
        there = gcp.find(f"https://storage.googleapis.com/storage/v1/b/{name}")
    except GcpRefusedError as error:
        if error.status != httpx.codes.FORBIDDEN:
            raise
        yield name_taken
        return
    if there is not None and there["projectNumber"] != spec.project_number:
        yield name_taken
    elif there is None and spec.existing_bucket:
        fix = "correct the name, or set existing_bucket: false to create it"
        yield Problem(path, f"{name} does not exist", "a bucket of yours", fix)


def _filesystem(spec: GcpSpec, gcp: GcpClient) -> Iterator[Problem]:
    """Check an existing instance of Managed Lustre; a Filestore share has only an address."""
    existing = spec.filesystem.existing
    if not isinstance(existing, ExistingManagedLustreSpec):
        return
    zone = spec.filesystem.zone or spec.zones[0]
    location = f"projects/{spec.project}/locations/{zone}/instances/{existing.instance}"
    found = gcp.find(f"https://lustre.googleapis.com/v1/{location}")
    path, mount_point = "target.filesystem.existing", f"{existing.address}@tcp:/{existing.name}"
    if found is None:
        fix = "correct the name or `zone`, or omit `existing` to create one"
        yield Problem(path, f"{existing.instance}: not in {zone}", "an instance of Managed Lustre", fix)
    elif found["mountPoint"] != mount_point:
        yield Problem(path, mount_point, found["mountPoint"], "write the address and name of its mount point")


def _cluster_url(spec: GcpSpec, name: str) -> str:
    location = f"projects/{spec.project}/locations/{spec.region}/clusters/{name}"
    return f"https://container.googleapis.com/v1/{location}"


def _cluster(spec: GcpSpec, gcp: GcpClient) -> Iterator[Problem]:
    """The existing cluster must match the stack file, and be running."""
    existing = spec.existing_cluster
    if existing is None:
        return
    path = "target.existing_cluster"
    found = gcp.find(_cluster_url(spec, existing.name))
    if found is None:
        fix = "correct the name or the region (a zonal cluster is not supported), or omit it to create one"
        yield Problem(f"{path}.name", f"{existing.name}: not in {spec.region}", "a regional cluster", fix)
        return
    version = minor_of(found["currentMasterVersion"])
    if version != existing.version:
        yield Problem(f"{path}.version", existing.version, version, "write the version that it has")
    if lacking := [name for name in existing.features if name not in _features(found)]:
        fix = "turn them on (`gcloud container clusters update`), or remove them here"
        yield Problem(f"{path}.features", f"{', '.join(lacking)}: off", "on", fix)
    if existing.endpoint not in (endpoints := _endpoints(found)):
        fix = f"write what `gcloud container clusters describe {existing.name}` shows"
        yield Problem(f"{path}.endpoint", existing.endpoint, " or ".join(endpoints), fix)
    channel = found.get("releaseChannel", {}).get("channel", "none").lower()
    if {"unspecified": "none"}.get(channel, channel) != spec.release_channel:
        yield Problem("target.release_channel", spec.release_channel, channel, "write the cluster's own")
    group = found.get("authenticatorGroupsConfig", {}).get("securityGroup")
    if spec.access.security_group and group != spec.access.security_group:
        fix = "`gcloud container clusters update --security-group`: the cluster's owner sets it there"
        yield Problem("target.access.security_group", spec.access.security_group, str(group), fix)
    network = spec.network.existing
    if network and (found["network"], found["subnetwork"]) != (network.network, network.subnetwork):
        got, actual = f"{network.network}, {network.subnetwork}", f"{found['network']}, {found['subnetwork']}"
        yield Problem("target.network.existing", got, actual, "name the cluster's own VPC and subnet")
    if found["status"] != "RUNNING":
        yield Problem(f"{path}.name", f"{existing.name} is {found['status']}", "RUNNING", "wait until it is")


def _features(found: Answer) -> set[str]:
    """Return the features of a cluster by their names in the stack file."""
    network, addons = found.get("networkConfig", {}), found.get("addonsConfig", {})
    has = {
        "workload-identity": found.get("workloadIdentityConfig", {}).get("workloadPool"),
        "dataplane-v2": network.get("datapathProvider") == "ADVANCED_DATAPATH",
        "multi-networking": network.get("enableMultiNetworking"),
        "gcs-fuse": addons.get("gcsFuseCsiDriverConfig", {}).get("enabled"),
        "lustre": addons.get("lustreCsiDriverConfig", {}).get("enabled"),
    }
    return {name for name, there in has.items() if there}


def _endpoints(found: Answer) -> list[str]:
    """URLs of its API server: the DNS name, the addresses."""
    config = found.get("controlPlaneEndpointsConfig", {})
    names = [
        config.get("dnsEndpointConfig", {}).get("endpoint"),
        config.get("ipEndpointsConfig", {}).get("privateEndpoint"),
        found.get("endpoint"),
    ]
    return list(dict.fromkeys(f"https://{name}" for name in names if name))
