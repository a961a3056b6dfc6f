"""Fills in what a stack file leaves out, from its name, its profile, its pools and its target: name, zones,
system pool, queues, quotas, queues of teams, and storage. Each default has an origin, which
`trainyard stack validate --expand` prints.
"""

import copy
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from catalog import regions
from catalog.quantities import units
from infra.common.target_registry import TARGETS, target_of
from infra.stackfile.answers import KeyPath
from infra.stackfile.machine import declared
from infra.stackfile.node_pool import NodePoolSpec
from infra.stackfile.profiles import SYSTEM, values
from infra.stackfile.target import TargetSpec

_PREFERENCE = ("reserved", "spot", "on-demand")
"""Purchase options in the order in which a queue tries its pools: paid for, cheap, lasting."""


@dataclass(frozen=True)
class Completed:
    """A stack's data with its defaults, and the origin of each default."""

    data: Any
    origins: dict[KeyPath, str] = field(default_factory=dict)
    derived: dict[KeyPath, KeyPath] = field(default_factory=dict)
    """Path of a section that was added → the path of the value that it follows from."""

    def put(self, section: Any, path: KeyPath, value: object, origin: str) -> None:  # noqa: ANN401
        """Set the last key of a path in its section, unless the file has it or the section is no mapping."""
        if isinstance(section, dict) and path[-1] not in section:
            section[path[-1]] = value
            self.origins[path] = origin


def completed(data: Any, name: str = "") -> Completed:  # noqa: ANN401 -- whatever the user wrote
    """Return the data with defaults for the keys that it leaves out; wrong values stay as they are.

    Args:
        data: what `trainyard:stack` has.
        name: name of the stack, the default of the cluster's.
    """
    found = Completed(copy.deepcopy(data))
    if not isinstance(data, Mapping):
        return found
    found.put(found.data, ("schema",), 1, "the only version")
    if name:
        found.put(found.data, ("name",), name, "the stack's name")
    _complete_target(found)
    _complete_pools(found)
    _apply_profile(found)
    _complete_sizes(found)
    pools = dict(_pools(found.data))
    _complete_filesystem(found, pools.values())
    _complete_queues(found, pools)
    _complete_storage(found)
    return found


def _complete_target(found: Completed) -> None:
    target, spec = _section(found.data, "target"), _spec(found.data)
    if spec is None:
        return
    if spec.USUAL_FILESYSTEM:
        usual = {"kind": spec.USUAL_FILESYSTEM}
        found.put(target, ("target", "filesystem"), usual, "the filesystem without a stated size")
    subnets = _section(_section(_section(target, "network"), "existing"), "subnets")
    if subnets and "zones" in spec.DEFAULTED:
        found.put(target, ("target", "zones"), [*subnets], "the zones of the existing subnets")
    elif zones := _zones(spec, target):
        found.put(target, ("target", "zones"), zones, "the region's first three zones")


def _zones(spec: type[TargetSpec], target: Mapping[str, Any]) -> list[str]:
    """Return the first three zones of the region, by the catalogue; none where the target asks for none."""
    region = target.get("region")
    known = {each.name: each for each in regions(str(target["kind"]))} if spec.ZONE else {}
    letters = known[region].zones if region in known else ""
    return [spec.ZONE.format(region=region, letter=letter) for letter in letters]


def _complete_pools(found: Completed) -> None:
    """Add the system pool, and name each pool by what it is."""
    pools = _mappings(found.data, "pools")
    if pools and _spec(found.data) and not any(pool.get("role") == "system" for pool in pools):
        found.data["pools"].append({"role": "system"})
        found.origins["pools", len(pools), "role"] = "every stack has a system pool"
    for index, pool in enumerate(_mappings(found.data, "pools")):
        name = pool.get("role") or pool.get("capacity") or "on-demand"
        found.put(pool, ("pools", index, "name"), name, "its role, or else its capacity")


def _apply_profile(found: Completed) -> None:
    """Set the keys of the profile that the file leaves out."""
    target = _section(found.data, "target")
    profile, filesystem = str(found.data.get("profile")), _section(target, "filesystem")
    for key, value in values(profile, str(target.get("kind")), str(filesystem.get("kind"))):
        above, _, last = key.rpartition(".")
        if above == SYSTEM:
            _put_in_system(found, {last: value}, f"profile {profile}")
            continue
        path, section = tuple(above.split(".")), found.data
        for part in path:
            section = section.setdefault(part, {}) if isinstance(section, dict) else None
        found.put(section, (*path, last), value, f"profile {profile}")


def _complete_sizes(found: Completed) -> None:
    """Set machine and number of nodes of the system pool, and one node of each other pool."""
    spec, target = _spec(found.data), _section(found.data, "target")
    _put_in_system(found, spec.USUAL_SYSTEM if spec else {}, f"usual for {target.get('kind')}")
    for index, pool in enumerate(_mappings(found.data, "pools")):
        found.put(pool, ("pools", index, "nodes"), 1, "one node")


def _put_in_system(found: Completed, usual: Mapping[str, object], origin: str) -> None:
    spec, target = _spec(found.data), _section(found.data, "target")
    for index, pool in enumerate(_mappings(found.data, "pools")):
        if pool.get("role") == "system":
            zones = pool.get("zones") or target.get("zones")
            spread = len(zones) if spec and spec.AS_MANY_IN_EACH_ZONE and isinstance(zones, list) else 1
            for key, value in usual.items():
                nodes = -(-value // spread) * spread if key == "nodes" and isinstance(value, int) else value
                found.put(pool, ("pools", index, key), nodes, origin)


def _complete_filesystem(found: Completed, pools: Iterable[NodePoolSpec]) -> None:
    """Put a filesystem of one zone where the first pool with a fabric is."""
    target, spec = _section(found.data, "target"), _spec(found.data)
    for key in ("filesystem", "second_filesystem"):
        filesystem = _section(target, key)
        if spec is None or "existing" in filesystem or filesystem.get("kind") not in spec.ZONAL_FILESYSTEMS:
            continue
        for pool in pools:
            if pool.zones and pool.fabric != "tcp" and pool.zones[0] in (target.get("zones") or ()):
                path = ("target", key, "zone")
                found.put(filesystem, path, pool.zones[0], f"where pool {pool.name} is")


def _complete_queues(found: Completed, pools: Mapping[str, NodePoolSpec]) -> None:
    if made := list(_queues(list(pools.values()))):
        found.put(found.data, ("queues",), made, "the pools with accelerators, by fabric class")
    queues = _mappings(found.data, "queues")
    for index, team in enumerate(_mappings(found.data, "teams") if len(queues) == 1 else ()):
        found.put(team, ("teams", index, "queue"), queues[0].get("name"), "the only queue")
    _add_queues_of_teams(found)
    flavors = [(path, each) for path, each in _flavors(found.data) if isinstance(each, dict)]
    left = {name: pool.num_accelerators for name, pool in pools.items()}
    for _, flavor in flavors:
        left[str(flavor.get("pool"))] = left.get(str(flavor.get("pool")), 0) - _whole(flavor.get("quota"))
    without = Counter(str(each.get("pool")) for _, each in flavors if "quota" not in each)
    for path, flavor in flavors:
        pool = str(flavor.get("pool"))
        if without[pool] == 1:
            # A pool that is wrong is reported itself; teams with quotas may leave nothing.
            least = 0 if found.derived else 1
            found.put(flavor, (*path, "quota"), max(left[pool], least), f"the accelerators of pool {pool}")


def _add_queues_of_teams(found: Completed) -> None:
    """Give each team with a quota a queue, in one cohort with the queue that it names; a closed one has 0."""
    shared = {each.get("name"): each for each in _mappings(found.data, "queues")}
    for index, team in enumerate(_mappings(found.data, "teams")):
        quota, of, name = team.get("quota"), team.get("queue"), team.get("name")
        if not isinstance(quota, dict) or of not in shared or of == name:
            continue
        number = list(shared).index(of)
        found.put(shared[of], ("queues", number, "cohort"), of, "teams with a quota share it")
        pools = dict.fromkeys([*(each.get("pool") for each in shared[of].get("flavors") or ()), *quota])
        flavors = [{"pool": each, "quota": 0 if team.get("closed") else quota.get(each, 0)} for each in pools]
        path = ("queues", len(found.data["queues"]))
        found.data["queues"].append({"name": name, "cohort": shared[of]["cohort"], "flavors": flavors})
        found.origins[path] = f"the quota of team {name}"
        found.derived[path] = ("teams", index, "quota")
        team["queue"] = name
        found.origins["teams", index, "queue"] = "the queue of its quota"


def _pools(data: Mapping[str, Any]) -> Iterator[tuple[str, NodePoolSpec]]:
    context = {"machines": declared(data)}
    for pool in _mappings(data, "pools"):
        try:
            found = NodePoolSpec.model_validate(pool, context=context)
        except ValidationError:
            continue
        yield found.name, found


def _queues(pools: Sequence[NodePoolSpec]) -> Iterator[dict[str, Any]]:
    """Yield a queue per fabric class: a job's runtime is of one class."""
    working = [pool for pool in pools if pool.accelerator and not pool.is_system]
    fabrics = list(dict.fromkeys(pool.fabric for pool in working))
    for fabric in fabrics:
        own = [pool for pool in working if pool.fabric == fabric]
        own.sort(key=lambda pool: _PREFERENCE.index(pool.capacity))
        kind = "tpu" if fabric == "ici" else "gpu"
        name = kind if len(fabrics) == 1 else f"{kind}-{fabric}"
        yield {"name": name, "flavors": [{"pool": pool.name} for pool in own]}


def _flavors(data: Mapping[str, Any]) -> Iterator[tuple[KeyPath, Any]]:
    for index, queue in enumerate(_mappings(data, "queues")):
        for position, flavor in enumerate(queue.get("flavors") or ()):
            yield ("queues", index, "flavors", position), flavor


def _complete_storage(found: Completed) -> None:
    target, spec = _section(found.data, "target"), _spec(found.data)
    if spec is None:
        return
    storage = found.data.setdefault("storage", {})
    if not isinstance(storage, dict):
        return
    checkpoints, store = (storage.setdefault(key, {}) for key in ("checkpoints", "object_store"))
    size, origin = _claim(target, spec.USUAL_CLAIM, len(_mappings(found.data, "teams")))
    found.put(checkpoints, ("storage", "checkpoints", "size"), size, origin)
    bucket = _bucket(spec.USUAL_BUCKET, {**target, "name": found.data.get("name")})
    if bucket:
        found.put(store, ("storage", "object_store", "bucket"), bucket, "the stack's name and account")
    if spec.USUAL_STORE:
        found.put(store, ("storage", "object_store", "size"), spec.USUAL_STORE, "the usual size")


def _claim(target: Mapping[str, Any], usual: str, teams: int) -> tuple[str, str]:
    """Return the size of a team's claim, and where it is from."""
    filesystem = target.get("filesystem")
    capacity = filesystem.get("capacity") if isinstance(filesystem, Mapping) else None
    try:
        total = units(str(capacity), "Gi") if capacity else 0
    except ValueError:
        total = 0  # the target's spec reports it
    if total and teams:
        return f"{total // teams}Gi", "the filesystem's capacity, divided among the teams"
    return usual, "the usual size"


def _bucket(pattern: str, values: Mapping[str, Any]) -> str:
    try:
        return pattern.format(**values)[:63].rstrip("-")
    except KeyError:
        return ""


def _spec(data: Mapping[str, Any]) -> type[TargetSpec] | None:
    """Return the spec of the stack's target; None where no target is of its kind."""
    kind = _section(data, "target").get("kind")
    return target_of(kind).spec if isinstance(kind, str) and kind in TARGETS else None


def _section(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the mapping under a key; an empty one where there is none."""
    section = data.get(key)
    return section if isinstance(section, dict) else {}


def _whole(quota: object) -> int:
    return quota if isinstance(quota, int) else 0


def _mappings(data: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the entries of a list that are mappings, where the list has no others."""
    entries = data.get(key)
    good = isinstance(entries, list | tuple) and all(isinstance(each, dict) for each in entries)
    return list(entries) if good and entries else []
