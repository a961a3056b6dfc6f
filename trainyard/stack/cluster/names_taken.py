"""Finds objects that the stack would create and that exist already, of others: one problem for each, or for
each operator that is there as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from infra.clients.kubernetes import ApiServer, Object
from infra.clients.kubernetes.api import path_of
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

    def __str__(self) -> str:
        return f"{self.kind} {'/'.join(filter(None, (self.namespace, self.name)))}"


def planned(announced: Iterable[Mapping[str, Any]]) -> Iterator[Planned]:
    """Yield the objects among the resources that a preview would create; patches create nothing."""
    for state in announced:
        inputs = state.get("inputs") or {}
        parents = state["urn"].split("::")[-2].split("$")
        layer = parents[-2].rpartition(":")[2] if len(parents) > 1 else ""
        if state["type"] == RELEASE:
            yield Planned("helm", "Release", inputs["name"], inputs["namespace"], layer)
        elif state["type"].startswith("kubernetes:") and not state["type"].endswith("Patch"):
            metadata = inputs.get("metadata") or {}
            if "name" in metadata and "apiVersion" in inputs:
                where = metadata.get("namespace", "")
                yield Planned(inputs["apiVersion"], inputs["kind"], metadata["name"], where, layer)


def taken(
    api: ApiServer, seen: ClusterSeen, objects: Iterable[Planned], stack: str
) -> list[tuple[Planned, Object]]:
    """Return the objects that exist without the stack's mark; the cluster is asked for each, some at once."""

    def find(each: Planned) -> Object | None:
        if each.api_version == "helm":
            return _release(api, each)
        served = seen.kinds.get((each.api_version, each.kind))
        if served is None:  # a kind that the stack brings
            return None
        group, _, version = each.api_version.rpartition("/")
        namespace = each.namespace if served.namespaced else ""
        found: Object | None = api.find(path_of((group, version, served.plural), namespace, each.name))
        return found

    wanted = list(objects)
    with ThreadPoolExecutor(WORKERS) as pool:
        found = list(pool.map(find, wanted))
    return [
        (each, there) for each, there in zip(wanted, found, strict=True) if there and not is_of(there, stack)
    ]


def _release(api: ApiServer, release: Planned) -> Object | None:
    """Return Helm's record of a release (a Secret with its labels); Helm refuses a name that is in use."""
    query = {"labelSelector": f"owner=helm,name={release.name}"}
    records = api.items(f"/api/v1/namespaces/{release.namespace}/secrets", query)
    if not records:
        return None
    annotations = {
        "meta.helm.sh/release-name": release.name,
        "meta.helm.sh/release-namespace": release.namespace,
    }
    return {"metadata": {**records[-1]["metadata"], "annotations": annotations}}


def problems(
    found: Iterable[tuple[Planned, Object]], keys: Mapping[str, str], explained: Iterable[str]
) -> Iterator[Problem]:
    """Yield a problem for each object that is taken, in the order of the plan.

    Args:
        found: objects that exist, with what is there.
        keys: layer, or name of an operator's namespace → key of the stack file that says whose it is.
        explained: keys of which another finding says already that the operator is there.
    """
    skipped = set(explained)
    for each, there in found:
        is_namespace = each.kind == "Namespace"
        key = keys.get(each.name if is_namespace else each.layer, "")
        if key in skipped:
            continue
        if key:
            skipped.add(key)
            fix = f"if they run it for you, write `{key}: existing`; else ask them to remove it"
        else:
            fix = _FIXES.get(each.kind, "rename or remove theirs, or run this stack on another cluster")
        yield Problem(str(each), f"exists, of {owner_of(there)}", NOTHING_CHANGED, fix)


_FIXES = {
    "Namespace": "give the team another name: its namespace, and what is in it, would become the stack's",
    "ClusterQueue": "give the queue another name in `queues`",
    "ResourceFlavor": "give the pool another name in `pools`",
    "WorkloadPriorityClass": "give the priority another name in `priorities`",
    "LocalQueue": "give the team another name",
}
