"""Reads the pools of a Kueue ClusterQueue: quota, use, and what its cohort has free."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import catalog
from infra.clients.kubernetes import Object
from infra.common import quantities


@dataclass(frozen=True)
class Pool:
    """A pool's quota in one queue, in accelerators."""

    name: str
    quota: int
    """Quota of this queue."""
    used: int
    """Accelerators that this queue uses, some of which may be borrowed."""
    free: int
    """Accelerators that this queue can still get, with what it can borrow from its cohort."""


def pools_of(name: str, known: Mapping[str, Object]) -> list[Pool]:
    """Return the pools of a queue; none where the user may not see the queue."""
    if name not in known:
        return []
    spec = known[name]["spec"]
    cohort = [
        each
        for each in known.values()
        if each is known[name]
        or (spec.get("cohortName") and each["spec"].get("cohortName") == spec["cohortName"])
    ]
    return [_pool(flavor, known[name], cohort) for flavor in _quotas(known[name])]


def max_accelerators(name: str, known: Mapping[str, Object]) -> dict[str, int]:
    """Return how many accelerators a queue can have of each pool while nothing is in use."""
    empty = {each: {**queue, "status": {}} for each, queue in known.items()}
    return {pool.name: pool.free for pool in pools_of(name, empty)}


def _pool(flavor: str, queue: Object, cohort: Sequence[Object]) -> Pool:
    (nominal, borrowing), used = _quotas(queue)[flavor], usage(queue).get(flavor, 0)
    all_free = sum(_quotas(each).get(flavor, (0, None))[0] - usage(each).get(flavor, 0) for each in cohort)
    own_limit = math.inf if borrowing is None and len(cohort) > 1 else nominal + (borrowing or 0)
    return Pool(flavor, nominal, used, max(0, int(min(all_free, own_limit - used))))


def _quotas(queue: Object) -> dict[str, tuple[int, int | None]]:
    """Return quota and borrowing limit of each flavor, in accelerators."""
    found: dict[str, tuple[int, int | None]] = {}
    for group in queue["spec"].get("resourceGroups", ()):
        for flavor in group["flavors"]:
            for each in _of_accelerators(flavor):
                quota, limit = quantities.read(each["nominalQuota"]), _number(each.get("borrowingLimit"))
                # Every flavor has all resources of the queue, and 0 of those that its pool has not.
                if quota or limit is not None or flavor["name"] not in found:
                    found[flavor["name"]] = quota, limit
    return found


def _of_accelerators(flavor: Object) -> list[Object]:
    kinds = catalog.accelerator_resources()
    return [each for each in flavor["resources"] if each["name"] in kinds]


def _number(text: str | None) -> int | None:
    return None if text is None else quantities.read(text)


def usage(queue: Object) -> dict[str, int]:
    """Return the accelerators that a queue uses of each flavor."""
    return {
        flavor["name"]: sum(quantities.read(each["total"]) for each in _of_accelerators(flavor))
        for flavor in queue.get("status", {}).get("flavorsReservation", ())
    }
