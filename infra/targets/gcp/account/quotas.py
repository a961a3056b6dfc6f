"""Finds the quotas of a Google Cloud project that are too small for a stack."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from catalog import Quota, find_quota
from infra.clients.gcp import COMPUTE, GcpClient, GcpRefusedError
from infra.errors import Problem
from infra.stackfile import Stack
from infra.targets.gcp.stackfile.groups import GkePool
from infra.targets.gcp.stackfile.target import GcpSpec

NETWORKS_OF_FABRIC = {"tcpxo": 8, "roce": 2}
CLOUD_QUOTAS = "https://cloudquotas.googleapis.com/v1"


def short_quotas(stack: Stack, bought: Sequence[GkePool], spec: GcpSpec, gcp: GcpClient) -> Iterator[Problem]:
    """Find quotas that are too small; reservations were counted at their creation."""
    counted = [group for group in bought if group.pool.capacity != "reserved"]
    project = f"{COMPUTE}/projects/{spec.project}"
    of_region = gcp.ask("GET", f"{project}/regions/{spec.region}")["quotas"]
    yield from _unknown(counted, spec)
    yield from _short(_needed(counted), of_region, spec.region)
    if spec.network.existing is None:
        fabrics = {pool.fabric for pool in stack.pools}
        networks = 1 + sum(NETWORKS_OF_FABRIC.get(fabric, 0) for fabric in fabrics)
        yield from _short({"NETWORKS": networks}, gcp.ask("GET", project)["quotas"], spec.project)
    yield from _short_families(counted, spec, gcp)


def _needed(bought: Sequence[GkePool]) -> Counter[str]:
    """Return the amounts that the region must still have, by quota of Compute's API."""
    needed: Counter[str] = Counter()
    for group in bought:
        quota = _quota(group)
        if quota and not quota.dimension:
            needed[quota.id] += _amount(group)
    return needed


def _quota(group: GkePool) -> Quota | None:
    """Return the quota that a group counts against: of its machine family, its accelerator or its series."""
    machine, accelerator = group.machine.name, group.pool.accelerator
    families = (machine.rpartition("-")[0], accelerator.model if accelerator else machine.partition("-")[0])
    found = (find_quota("gcp", family, is_spot=_is_preemptible(group)) for family in families)
    return next(filter(None, found), None)


def _amount(group: GkePool) -> int:
    """Return the amount that counts against the quota: accelerators, or vCPUs where there are none."""
    accelerator = group.pool.accelerator
    return group.num_nodes * (accelerator.count if accelerator else group.machine.vcpus)


def _unknown(bought: Sequence[GkePool], spec: GcpSpec) -> Iterator[Problem]:
    """An unknown quota is reported: silence would read as sufficient."""
    for name in sorted({each.machine.name for each in bought if _quota(each) is None}):
        allowed, fix = "a quota that `doctor` can ask for", f"look at IAM & Admin > Quotas of {spec.region}"
        yield Problem(f"quota: {name}", "the catalogue does not have its quota", allowed, fix)


def _is_preemptible(group: GkePool) -> bool:
    return group.pool.is_spot or group.pool.provisioning is not None


def _short(needed: Mapping[str, int], quotas: Sequence[Mapping[str, Any]], where: str) -> Iterator[Problem]:
    free = {each["metric"]: each["limit"] - each["usage"] for each in quotas}
    for metric, amount in needed.items():
        if free.get(metric, 0) < amount:
            got, allowed = f"{amount} are needed", f"{free.get(metric, 0):g} are free"
            yield Problem(f"quota: {metric}", got, allowed, _console(metric, where))


def _short_families(bought: Sequence[GkePool], spec: GcpSpec, gcp: GcpClient) -> Iterator[Problem]:
    """Quotas of whole families; the API does not report their usage."""
    needed: Counter[tuple[str, str, str]] = Counter()
    for group in bought:
        if counted := _quota(group):
            for dimension, name in counted.dimension.items():
                needed[counted.id, dimension, name] += _amount(group)
    for (quota, dimension, name), amount in needed.items():
        path = f"quota: {quota}, {name} in {spec.region}"
        got, fix = f"{amount} are needed", _console(quota, spec.region)
        try:
            limit = _limit(gcp, spec, quota, {dimension: name, "region": spec.region})
        except GcpRefusedError as error:
            fix = f"gcloud services enable cloudquotas.googleapis.com --project {spec.project}"
            yield Problem(path, f"not known: {error.problems[0].got}", "an answer", fix)
            continue
        if limit < amount:
            yield Problem(path, got, f"{limit:g} in all" if limit else "none", fix)


def _limit(gcp: GcpClient, spec: GcpSpec, quota: str, wanted: Mapping[str, str]) -> float:
    """Return the limit of the narrowest entry that holds; nothing where none does, for none was granted."""
    location = f"projects/{spec.project}/locations/global/services/compute.googleapis.com"
    entries = gcp.ask("GET", f"{CLOUD_QUOTAS}/{location}/quotaInfos/{quota}").get("dimensionsInfos", [])
    holding = [each for each in entries if (each.get("dimensions") or {}).items() <= wanted.items()]
    if not holding:
        return 0
    value = float(max(holding, key=lambda each: len(each.get("dimensions") or {}))["details"]["value"])
    return float("inf") if value == -1 else value


def _console(quota: str, where: str) -> str:
    return f"ask for more: IAM & Admin > Quotas, {quota} of {where}"
