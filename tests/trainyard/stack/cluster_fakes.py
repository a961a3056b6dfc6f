"""A fake API server of a cluster that others have furnished: it lists and returns objects, and refuses to
change anything but by a dry run.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from infra.clients.kubernetes import ApiServer
from tests.objects import Object, thing
from tests.servers import QuietHandler, kubeconfig_of, serving
from tests.tables import table


def definition(name: str, versions: Sequence[str], *paths: str, **metadata: Any) -> Object:
    """Return a definition that serves these versions, with these dotted paths in its schemas."""
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    for path in paths:
        at = schema
        for part in path.split("."):
            at = at["properties"].setdefault(part, {"type": "object", "properties": {}})
    served = [{"name": each, "served": True, "schema": {"openAPIV3Schema": schema}} for each in versions]
    plural, _, group = name.partition(".")
    spec = {"group": group, "names": {"plural": plural}, "versions": served}
    return thing("apiextensions.k8s.io/v1", "CustomResourceDefinition", name, spec=spec, **metadata)


def deployment(name: str, namespace: str, image: str, account: str = "default") -> Object:
    pod = {"serviceAccountName": account, "containers": [{"name": "manager", "image": image}]}
    return thing("apps/v1", "Deployment", name, namespace, spec={"template": {"spec": pod}})


def node(name: str, *, gpus: int = 0, kubelet: str = "v1.35.4", system: str = "Ubuntu 24.04") -> Object:
    status = {
        "allocatable": {"nvidia.com/gpu": str(gpus)} if gpus else {},
        "nodeInfo": {"kubeletVersion": kubelet, "osImage": system},
    }
    return thing("v1", "Node", name, status=status)


@contextmanager
def furnished(
    *objects: Object,
    version: str = "v1.35.4",
    groups: Mapping[str, Sequence[Any]] | None = None,
    admit: Callable[[Object, str], Object | str] = lambda tried, user: tried,
    asked: list[str] | None = None,
) -> Iterator[ApiServer]:
    """Serve a cluster with these objects.

    Args:
        objects: what it has.
        version: of Kubernetes.
        groups: apiVersion → further kinds that it serves.
        admit: of an object that is tried and its user: as webhooks leave it, or why it is refused.
        asked: gets the path of each request.
    """
    served: dict[str, Sequence[Any]] = {**table(__file__, "served"), **(groups or {})}
    plurals = {(group, kind): plural for group, kinds in served.items() for kind, plural, _ in kinds}
    requests = [] if asked is None else asked

    class Cluster(QuietHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            requests.append(url.path)
            if url.path == "/version":
                self.respond(200, {"gitVersion": version})
            elif url.path in ("/api", "/apis"):
                self.respond(200, _discovery(served, core=url.path == "/api"))
            else:
                self.respond(*_answer(objects, plurals, url.path, parse_qs(url.query)))

        def do_POST(self) -> None:
            tried = self.body()
            answer = admit(tried, self.headers.get("Impersonate-User", ""))
            if not self.path.endswith("?dryRun=All"):
                self.respond(403, {"message": "a look changes nothing"})
            elif isinstance(answer, str):
                self.respond(403, {"message": answer})
            else:
                self.respond(201, answer)

        def do_PATCH(self) -> None:
            self.respond(403, {"message": "a look changes nothing"})

        do_PUT = do_DELETE = do_PATCH

    with serving(Cluster) as listening:
        yield ApiServer.of(yaml.safe_dump(kubeconfig_of(f"http://127.0.0.1:{listening.server_port}")))


def _answer(
    objects: Sequence[Object],
    plurals: Mapping[tuple[str, str], str],
    path: str,
    query: Mapping[str, list[str]],
) -> tuple[int, Object]:
    """Return status and body of a request for an object or a list."""
    wanted = dict(part.split("=") for part in query.get("labelSelector", [""])[0].split(",") if part)
    for each in objects:
        if path == f"{_collection(each, plurals)}/{_name(each)}":
            return 200, each
    if path.rpartition("/")[2] not in plurals.values():
        return 404, {"message": "not found"}
    listed = [
        each
        for each in objects
        if path in _collections(each, plurals)
        and wanted.items() <= (each["metadata"].get("labels") or {}).items()
    ]
    return 200, {"items": listed}


def _name(each: Object) -> str:
    return str(each["metadata"]["name"])


def _collection(each: Object, plurals: Mapping[tuple[str, str], str]) -> str:
    version = each["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespace = each["metadata"].get("namespace")
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{within}/{plurals[version, each['kind']]}"


def _collections(each: Object, plurals: Mapping[tuple[str, str], str]) -> set[str]:
    """Paths at which it is listed: its namespace's, and that of all namespaces."""
    own = _collection(each, plurals)
    head, _, tail = own.partition("/namespaces/")
    return {own, f"{head}/{tail.split('/')[-1]}"} if tail and "/" in tail else {own}


def _discovery(served: Mapping[str, Sequence[Any]], *, core: bool) -> Object:
    """The answer in the form of apidiscovery.k8s.io/v2."""
    items = []
    for api_version, kinds in served.items():
        group, _, version = api_version.rpartition("/")
        if core == bool(group):
            continue
        scopes = {True: "Namespaced", False: "Cluster"}
        resources = [
            {"resource": plural, "responseKind": {"kind": kind}, "scope": scopes[namespaced]}
            for kind, plural, namespaced in kinds
        ]
        versions = [{"version": version, "resources": resources}]
        items.append({"metadata": {"name": group}, "versions": versions})
    return {"kind": "APIGroupDiscoveryList", "items": items}
