"""`look`: reads what a cluster has (version, kinds, operators, nodes), changing nothing."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import Any

import yaml

from infra.clients.kubernetes import ApiError, ApiServer, Object
from infra.common.names import OPERATOR_NAMESPACES

_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_KUEUE_CONFIG, _KUEUE_KEY = "kueue-manager-config", "controller_manager_config.yaml"
"""ConfigMap of Kueue's configuration in its chart and manifests (config/components/manager)."""
OPERATOR_IMAGE = re.compile(
    r"/(kueue|jobset|trainer|mpi-operator|training-operator)(?:[-/][\w.-]+)?(?:[:@]|$)"
)
"""Images of the operators' controllers: upstream's, and those of vendors, such as `kueue/kueue-rhel9`."""
WORKERS = 16


@dataclass(frozen=True)
class Kind:
    """A kind that the API server serves."""

    plural: str
    namespaced: bool


@dataclass(frozen=True)
class Controller:
    """A Deployment that runs an operator."""

    operator: str
    namespace: str
    name: str
    account: str
    """Service account of its pods."""
    image: str


@dataclass(frozen=True)
class ClusterSeen:
    """What a cluster has, as its API server tells it."""

    version: str
    """As `/version` has it: `v1.35.4+k3s1`."""
    kinds: Mapping[tuple[str, str], Kind]
    """apiVersion and kind → how it is served."""
    definitions: Mapping[str, Object]
    """The definitions that were asked for and exist, by name."""
    nodes: Sequence[Object]
    controllers: Sequence[Controller]
    kueue: Mapping[str, Any] | None
    """Kueue's configuration; None where it could not be found."""
    storage_classes: Sequence[Object] = ()

    @cached_property
    def minor(self) -> str:
        """The minor version: `1.35`."""
        found = re.match(r"v?(\d+)\.(\d+)", self.version)
        return f"{found[1]}.{found[2]}" if found else self.version

    @cached_property
    def vendor(self) -> str:
        """Vendor's part of the version: `k3s1`, `gke.1234`; empty for upstream's Kubernetes."""
        return self.version.partition("+")[2] or self.version.partition("-")[2]

    @property
    def elsewhere(self) -> list[Controller]:
        """Controllers in other namespaces than upstream's, which the admission policies know."""
        return [each for each in self.controllers if each.namespace not in OPERATOR_NAMESPACES]

    def controller(self, operator: str) -> Controller | None:
        """The Deployment of an operator; None where none was found."""
        return next((each for each in self.controllers if each.operator == operator), None)


def look(api: ApiServer, definitions: Sequence[str]) -> ClusterSeen:
    """Ask for everything at once; `definitions` are the names of those that are read whole.

    Raises:
        TrainyardError: no answer, or none to this user.
    """
    with ThreadPoolExecutor(WORKERS) as pool:
        version = pool.submit(api.get, "/version")
        kinds = pool.submit(_kinds, api)
        nodes = pool.submit(api.items, "/api/v1/nodes")
        deployments = pool.submit(api.items, "/apis/apps/v1/deployments")
        classes = pool.submit(api.items, "/apis/storage.k8s.io/v1/storageclasses")
        found = pool.map(lambda name: api.find(f"{_DEFINITIONS}/{name}"), definitions)
        controllers = list(_controllers(deployments.result()))
        return ClusterSeen(
            str(version.result()["gitVersion"]),
            kinds.result(),
            {name: each for name, each in zip(definitions, found, strict=True) if each},
            nodes.result(),
            controllers,
            _kueue(api, controllers),
            classes.result(),
        )


def _kinds(api: ApiServer) -> dict[tuple[str, str], Kind]:
    """Read aggregated discovery, which Kubernetes serves since 1.27 (KEP-3352)."""
    found: dict[tuple[str, str], Kind] = {}
    for path in ("/api", "/apis"):
        for group in _discovered(api, path):
            name = group["metadata"].get("name", "")
            for version in group.get("versions") or ():
                for resource in version.get("resources") or ():
                    kind = (resource.get("responseKind") or {}).get("kind", "")
                    served = "/".join(filter(None, (name, version["version"])))
                    found[served, kind] = Kind(resource["resource"], resource["scope"] == "Namespaced")
    return found


def _discovered(api: ApiServer, path: str) -> list[Any]:
    for version in ("v2", "v2beta1"):
        try:
            answer = json.loads(api.read(path, accept=_DISCOVERY.format(version)))
        except ApiError as error:
            if error.status != HTTPStatus.NOT_ACCEPTABLE:
                raise
            continue
        if answer.get("kind") == "APIGroupDiscoveryList":
            return list(answer.get("items") or ())
    return []  # older than 1.27: the version's check refuses it


def _controllers(deployments: Sequence[Object]) -> Iterator[Controller]:
    for each in deployments:
        pod = each["spec"]["template"]["spec"]
        for container in pod["containers"]:
            if found := OPERATOR_IMAGE.search(container.get("image", "")):
                metadata = each["metadata"]
                account = pod.get("serviceAccountName") or "default"
                yield Controller(
                    found[1], metadata["namespace"], metadata["name"], account, container["image"]
                )
                break


def _kueue(api: ApiServer, controllers: Sequence[Controller]) -> Mapping[str, Any] | None:
    for each in controllers:
        if each.operator != "kueue":
            continue
        path = f"/api/v1/namespaces/{each.namespace}/configmaps/{_KUEUE_CONFIG}"
        config = api.find(path)
        if config and _KUEUE_KEY in (config.get("data") or {}):
            found: Mapping[str, Any] = yaml.safe_load(config["data"][_KUEUE_KEY]) or {}
            return found
    return None
