"""`trainyard:kubernetes:CustomResourceDefinitions`: applies changed CRDs of a bundle, waits until they are
established, and deletes those of which no objects are left. It never changes a CRD of others.

The operators' CRDs are 7 MB, most of them descriptions in schemas. The engine rewrites its state at every
step, so the state has a digest for each, and the manifests are read from a file.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import yaml

from engine.provider.api_server import Deadline, refusals
from engine.provider.resource import (
    Failure,
    HandlerProgress,
    Inputs,
    Outputs,
    ReadResult,
    ResourceHandler,
    ResourceNotFound,
    wrong_inputs,
)
from infra.clients.kubernetes import ApiError, ApiServer
from infra.clients.kubernetes.api import path_of
from infra.common.names import OWNER_ANNOTATION
from infra.errors import InputError, Problem, TrainyardError

_COLLECTION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DIGEST = "trainyard.dev/digest"
"""Annotation with the digest of the applied manifest; the server's defaults prevent a direct comparison."""
WORKERS = 8
ESTABLISHED_SECONDS = 300.0
REMOVED_SECONDS = 120.0
EXPECTED = "an API server that accepts the definitions"
METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

T = TypeVar("T")
Manifest = Mapping[str, Any]


def digest(manifest: Manifest) -> str:
    """sha256 of the manifest as compact JSON with sorted keys."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class CustomResourceDefinitions(ResourceHandler):
    """Applied by the API server (server-side apply), in parallel, and awaited until Established."""

    TYPE = "trainyard:kubernetes:CustomResourceDefinitions"
    SECRETS = frozenset({"kubeconfig"})
    INCIDENTAL = frozenset({"source"})

    def check(self, inputs: Inputs) -> list[Failure]:
        wanted = dict.fromkeys(("kubeconfig", "owner", "source"), str)
        failures = wrong_inputs(inputs, wanted, others=["definitions"])
        definitions = inputs.get("definitions")
        if not isinstance(definitions, Mapping) or not definitions:
            failures.append(Failure("definitions", "is required: a mapping of CRD names to sha256 digests"))
        return failures

    def identify(self, inputs: Inputs) -> str:
        return "custom-resource-definitions"

    def create(self, inputs: Inputs, progress: HandlerProgress) -> Outputs:
        """Raises TrainyardError, before any is applied, where some exist that are not this stack's."""
        _apply(inputs, progress)
        return {}

    def update(self, old: Inputs, new: Inputs, progress: HandlerProgress) -> Outputs:
        """Apply changed definitions; on the same cluster remove unrequested ones without objects."""
        _apply(new, progress, known=old["definitions"])
        if old["kubeconfig"] == new["kubeconfig"]:
            dropped = old["definitions"].keys() - new["definitions"].keys()
            _connect(new["kubeconfig"]).remove(dropped, progress)
        return {}

    def read(self, inputs: Inputs, outputs: Outputs, progress: HandlerProgress) -> ReadResult:
        """Report missing and changed definitions. Raises ResourceNotFound where all are missing."""
        found = _connect(inputs["kubeconfig"]).annotations()
        definitions = {name: found[name].get(DIGEST, "") for name in inputs["definitions"] if name in found}
        if not definitions:
            raise ResourceNotFound(inputs["source"])
        return ReadResult({**inputs, "definitions": definitions}, outputs)

    def delete(self, inputs: Inputs, progress: HandlerProgress) -> None:
        """Remove those of which no objects are left: a removed definition would delete these."""
        _connect(inputs["kubeconfig"]).remove(inputs["definitions"], progress)


def _apply(inputs: Inputs, progress: HandlerProgress, known: Collection[str] = ()) -> None:
    """Update definitions that differ from the bundle; the state has those in `known` as this stack's."""
    manifests = load_bundle(Path(inputs["source"]), inputs["definitions"])
    server = _connect(inputs["kubeconfig"])
    found = server.annotations()
    owner = inputs["owner"]
    if foreign := [
        name
        for name in sorted(manifests.keys() & found.keys() - set(known))
        if found[name].get(OWNER_ANNOTATION) != owner
    ]:
        raise TrainyardError([_foreign(name, found[name], owner) for name in foreign])
    changed = [
        _marked(manifest, owner)
        for name, manifest in manifests.items()
        if found.get(name, {}).get(DIGEST) != digest(manifest)
    ]
    if stuck := [each for manifest in changed for each in _store_anew(manifest, server, progress)]:
        raise TrainyardError(stuck)
    server.apply(changed, progress)


def _store_anew(
    manifest: Manifest, server: "DefinitionsClient", progress: HandlerProgress
) -> Iterator[Problem]:
    """Have objects in versions that the new definition lacks stored in one of both; report where none is."""
    name, known = manifest["metadata"]["name"], {each["name"] for each in manifest["spec"]["versions"]}
    present = server.find(name) or {}
    if known.issuperset((present.get("status") or {}).get("storedVersions") or ()):
        return
    version = next(str(each["name"]) for each in present["spec"]["versions"] if each["storage"])
    if version in known:
        server.store_anew(present, version, progress)
        return
    allowed = f"versions of the new release: {', '.join(sorted(known))}; nothing was changed"
    fix = "bring the stack up by a release between the two first, which stores them in a version of both"
    yield Problem(f"CustomResourceDefinition {name}", f"stores objects as {version}", allowed, fix)


def _foreign(name: str, annotations: Mapping[str, str], owner: str) -> Problem:
    """Report a definition that somebody else has made."""
    release = annotations.get("meta.helm.sh/release-name", "")
    helm = f"Helm release {release} in {annotations.get('meta.helm.sh/release-namespace', '')}"
    whose = annotations.get(OWNER_ANNOTATION) or (release and helm) or "others"
    return Problem(
        path=f"CustomResourceDefinition {name}",
        got=f"exists, and is of {whose}",
        allowed=f"one that stack {owner} has made; this one was not changed",
        fix="leave their operator as it is: write `existing` for it in `operators` of the stack file",
    )


def load_bundle(source: Path, definitions: Mapping[str, str]) -> dict[str, Manifest]:
    """Read a YAML bundle. Raises InputError with every difference from `definitions`."""
    try:
        documents = yaml.load_all(source.read_bytes(), Loader=yaml.CSafeLoader)
        found = {document["metadata"]["name"]: document for document in documents if document}
    except FileNotFoundError:
        raise InputError([_problem("source", f"no file {source}", "the bundle in the cache")]) from None
    problems = []
    for name, value in sorted(definitions.items()):
        got = digest(found[name]) if name in found else "not in the bundle"
        if got != value:
            problems.append(_problem(f"definitions[{name}]", got, value))
    if problems:
        raise InputError(problems)
    return {name: found[name] for name in definitions}


def _problem(path: str, got: str, allowed: str) -> Problem:
    return Problem(path, got, allowed, "run `trainyard up`, which renders the bundle again")


def _connect(kubeconfig: str) -> "DefinitionsClient":
    return DefinitionsClient(ApiServer.of(kubeconfig))


class DefinitionsClient:
    """The API server's definitions, a few requests at once."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api

    def annotations(self) -> dict[str, Mapping[str, str]]:
        """The annotations of each definition that exists."""
        with refusals(EXPECTED):
            found = json.loads(self._api.read(_COLLECTION, accept=METADATA_ONLY))
        metadata = [item["metadata"] for item in found.get("items") or []]
        return {each["name"]: each.get("annotations") or {} for each in metadata}

    def apply(self, manifests: Collection[Manifest], progress: HandlerProgress) -> None:
        """Apply and wait until the API server serves them."""

        def one(manifest: Manifest) -> None:
            name = manifest["metadata"]["name"]
            with refusals(EXPECTED):
                applied = self._api.apply(f"{_COLLECTION}/{name}", manifest)
            deadline = Deadline(ESTABLISHED_SECONDS, f"{name} is not established", EXPECTED, progress)
            while not _is_established(applied):
                deadline.wait()
                applied = self.find(name)

        _in_parallel(one, manifests, "applied", progress)

    def remove(self, names: Collection[str], progress: HandlerProgress) -> None:
        """Remove those that exist and have no objects, and wait until they are deleted."""

        def one(name: str) -> None:
            if used := self._object_of(name):
                progress.log(f"{name} is kept: {used} is of its kind")
                return
            with refusals(EXPECTED):
                is_there = self._api.delete(f"{_COLLECTION}/{name}")
            deadline = Deadline(REMOVED_SECONDS, f"{name} is not deleted", EXPECTED, progress)
            while is_there:
                deadline.wait()
                is_there = self.find(name) is not None

        _in_parallel(one, names, "removed", progress)

    def _object_of(self, name: str) -> str:
        """Name an object of a definition's kind; empty where none is left, or the definition is gone."""
        definition = self.find(name)
        if definition is None:
            return ""
        served = next((each["name"] for each in definition["spec"]["versions"] if each["served"]), "")
        found = next(self._objects(definition, served, {"limit": 1}), ("", ""))
        return "/".join(filter(None, found))

    def _objects(
        self, definition: Manifest, version: str, query: Mapping[str, int] = MappingProxyType({})
    ) -> Iterator[tuple[str, str]]:
        """Yield namespace and name of the objects of a definition's kind."""
        path = f"/apis/{definition['spec']['group']}/{version}/{definition['spec']['names']['plural']}"
        with refusals(EXPECTED):
            found = json.loads(self._api.read(path, query, accept=METADATA_ONLY))
        for item in found.get("items") or ():
            yield item["metadata"].get("namespace", ""), item["metadata"]["name"]

    def store_anew(self, definition: Manifest, version: str, progress: HandlerProgress) -> None:
        """Have the API server write each object in the definition's storage version, and forget the others.

        It writes an object whose stored form differs, even if nothing in it changes (Kubernetes, "Upgrade
        existing objects to a new stored version").
        """
        spec, name = definition["spec"], definition["metadata"]["name"]
        objects = list(self._objects(definition, version))
        with refusals(EXPECTED):
            for each in objects:
                try:
                    self._api.merge(path_of((spec["group"], version, spec["names"]["plural"]), *each), {})
                except ApiError as error:
                    if error.status != HTTPStatus.NOT_FOUND:  # ended meanwhile
                        raise
            self._api.merge(f"{_COLLECTION}/{name}/status", {"status": {"storedVersions": [version]}})
        progress.log(f"{name}: {len(objects)} objects stored anew, as {version}")

    def find(self, name: str) -> Manifest | None:
        """Return a definition; None where there is none."""
        with refusals(EXPECTED):
            found: Manifest | None = self._api.find(f"{_COLLECTION}/{name}")
        return found


def _in_parallel(
    one: Callable[[T], None], items: Collection[T], done: str, progress: HandlerProgress
) -> None:
    with ThreadPoolExecutor(WORKERS) as pool:
        for count, _ in enumerate(pool.map(one, items), start=1):
            progress.log(f"{count} of {len(items)} definitions {done}")


def _marked(manifest: Manifest, owner: str) -> Manifest:
    metadata = manifest["metadata"]
    annotations = {**(metadata.get("annotations") or {}), DIGEST: digest(manifest), OWNER_ANNOTATION: owner}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def _is_established(definition: Manifest | None) -> bool:
    conditions = (definition or {}).get("status", {}).get("conditions") or []
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)
