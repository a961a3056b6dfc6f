"""Finds objects that the stack would create and that exist already, of others: one problem for each, or for
each operator that is there as a whole.
"""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from infra.clients.kubernetes import ApiError, ApiServer, Object
from infra.clients.kubernetes.api import path_of
from infra.common.names import OWNER_ANNOTATION, USABLE_KINDS
from infra.errors import Problem
from trainyard.stack.cluster.owners import is_of, owner_of
from trainyard.stack.cluster.seen import WORKERS, ClusterSeen

RELEASE = "kubernetes:helm.sh/v3:Release"
NOTHING_CHANGED = "a name that is free; nothing was changed"


@dataclass(frozen=True)
class Planned:
    """An object that an `up` would create."""

    api_version: str
    kind: str
    name: str
    namespace: str
    layer: str
    """Part of the platform that declares it, by its component's type: `Kueue`."""
    content: Object = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        return f"{self.kind} {'/'.join(filter(None, (self.namespace, self.name)))}"


def planned(announced: Iterable[Mapping[str, Any]]) -> Iterator[Planned]:
    """Yield the objects among the resources that a preview would create; patches create nothing."""
    for state in announced:
        if state.get("is_known"):
            continue
        inputs = state.get("inputs") or {}
        parents = state["urn"].split("::")[-2].split("$")
        layer = parents[-2].rpartition(":")[2] if len(parents) > 1 else ""
        if state["type"] == RELEASE:
            yield Planned("helm", "Release", inputs["name"], inputs["namespace"], layer)
        elif state["type"].startswith("kubernetes:") and not state["type"].endswith("Patch"):
            metadata = inputs.get("metadata") or {}
            if "name" in metadata and "apiVersion" in inputs:
                where = metadata.get("namespace", "")
                yield Planned(inputs["apiVersion"], inputs["kind"], metadata["name"], where, layer, inputs)


@dataclass(frozen=True)
class Taken:
    """An object that would be created, and what is there."""

    planned: Planned
    there: Object
    differs: str = ""
    """Where it differs from the stack's, of a kind that the stack can use; empty: nowhere."""


def taken(api: ApiServer, seen: ClusterSeen, objects: Iterable[Planned], stack: str) -> list[Taken]:
    """Return the objects that exist without the stack's mark; the cluster is asked for each, some at once."""

    def find(each: Planned) -> Taken | None:
        path = _path(seen, each, each.name)  # none: a kind that the stack brings
        there = _release(api, each) if each.api_version == "helm" else path and api.find(path)
        if not there or is_of(there, stack):
            return None
        usable = each.kind in USABLE_KINDS
        return Taken(each, there, _difference(api, _path(seen, each), each, there) if usable else "")

    with ThreadPoolExecutor(WORKERS) as pool:
        return [each for each in pool.map(find, objects) if each]


def _path(seen: ClusterSeen, planned: Planned, name: str = "") -> str:
    """Path of an object, or of its collection; empty where its kind is not served."""
    served = seen.kinds.get((planned.api_version, planned.kind))
    if served is None:
        return ""
    group, _, version = planned.api_version.rpartition("/")
    return path_of((group, version, served.plural), planned.namespace if served.namespaced else "", name)


def _difference(api: ApiServer, collection: str, planned: Planned, there: Object) -> str:
    """Name the fields that differ, or why that is not known.

    A dry run under another name gives the stack's object the defaults that the server gave theirs.
    """
    trial = {**planned.content, "metadata": {"name": f"{planned.name}-trainyard-dry-run"}}
    try:
        made = api.create(collection, trial, {"dryRun": "All"})
    except ApiError as error:
        return error.message
    ours, theirs = _fields(made), _fields(there)
    return ", ".join(sorted(key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key)))


def _fields(found: Object) -> dict[str, Any]:
    own = {key: value for key, value in found.items() if key not in ("metadata", "spec", "status")}
    return {**own, **{f"spec.{key}": value for key, value in (found.get("spec") or {}).items()}}


def _records(api: ApiServer, release: Planned) -> list[Object]:
    """Return Helm's records of a release: Secrets with its labels; Helm refuses a name that is in use."""
    query = {"labelSelector": f"owner=helm,name={release.name}"}
    return api.items(f"/api/v1/namespaces/{release.namespace}/secrets", query)


def forget_begun(api: ApiServer, objects: Iterable[Planned], stack: str) -> None:
    """Delete Helm's records of releases that an `up` of this stack was killed at: Helm's record has no mark,
    but the namespace has. Helm then installs anew, and takes over the objects, which name the release.
    """
    for each in objects:
        if each.api_version == "helm" and is_of(api.find(_namespace(each)) or {"metadata": {}}, stack):
            for record in _records(api, each):
                api.delete(f"{_namespace(each)}/secrets/{record['metadata']['name']}")


def _namespace(release: Planned) -> str:
    return f"/api/v1/namespaces/{release.namespace}"


def _release(api: ApiServer, release: Planned) -> Object | None:
    """Return what Helm has of a release, with its owner: the stack whose mark the namespace has, or Helm."""
    if not (records := _records(api, release)):
        return None
    if (space := api.find(_namespace(release))) and OWNER_ANNOTATION in (
        space["metadata"].get("annotations") or {}
    ):
        return dict(space)
    annotations = {
        "meta.helm.sh/release-name": release.name,
        "meta.helm.sh/release-namespace": release.namespace,
    }
    return {"metadata": {**records[-1]["metadata"], "annotations": annotations}}


def problems(
    found: Iterable[Taken],
    keys: Mapping[str, str],
    explained: Iterable[str],
    used: Iterable[str] | None = None,
) -> Iterator[Problem]:
    """Yield a problem for each object that is taken, in the order of the plan.

    Args:
        found: objects that exist, with what is there.
        keys: layer, or name of an operator's namespace → key of the stack file that says whose it is.
        explained: keys of which another finding says already that the operator is there.
        used: `existing_objects`, which the stack uses as they are; None where it has no such key.
    """
    skipped, unknown = set(explained), set(used or ())
    for each in found:
        planned, name = each.planned, f"{each.planned.kind} {each.planned.name}"
        is_usable = used is not None and planned.kind in USABLE_KINDS and not each.differs
        key = keys.get(planned.name if planned.kind == "Namespace" else planned.layer, "")
        if key in skipped or (is_usable and name in unknown):
            unknown.discard(name)
            continue
        unknown.discard(name)
        if key:
            skipped.add(key)
            fix = f"if they run it for you, write `{key}: existing`; else ask them to remove it"
        elif is_usable:
            fix = f"it equals the stack's: write `target.existing_objects: [{name}]`"
        else:
            other = "rename or remove theirs, or run this stack on another cluster"
            fix = _FIXES.get(planned.kind, other).format(name=planned.name)
        differs = f", and differs in {each.differs}" if each.differs else ""
        yield Problem(str(planned), f"exists, of {owner_of(each.there)}{differs}", NOTHING_CHANGED, fix)
    for name in sorted(unknown):
        allowed = "an object of others with the kind and name of one of the stack's"
        yield Problem("target.existing_objects", name, allowed, "remove it: the stack creates its own")


_FIXES = {
    "Namespace": "if it is the team's, write `namespace: {name}` in `teams`, and it is never deleted; else"
    " give the team another name",
    "ClusterQueue": "give the queue another name in `queues`",
    "ResourceFlavor": "give the pool another name in `pools`",
    "WorkloadPriorityClass": "give the priority another name in `priorities`",
    "LocalQueue": "give the team another name",
}
