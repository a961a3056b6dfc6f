"""`trainyard:kubernetes:CustomResourceDefinitions`: applies changed CRDs of a bundle, waits until they are
established, and deletes them unless they are retained.

The operators' CRDs are 7 MB, most of them descriptions in schemas. The engine rewrites its state at every
step, so the state has a digest for each, and the manifests are read from a file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
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
)
from infra.clients.kubernetes import ApiServer
from infra.errors import InputError, Problem

_COLLECTION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DIGEST = "trainyard.dev/digest"
"""Annotation with the digest of the applied manifest; the server's defaults prevent a direct comparison."""
WORKERS = 8
ESTABLISHED_SECONDS = 300.0
REMOVED_SECONDS = 120.0
EXPECTED = "an API server that accepts the definitions"
REMOVE = (
    "`kubectl get {name} -A` lists them. The operator that removes finalizers has been deleted: remove them"
    """ (`kubectl patch {name} NAME --type=merge --patch='{{"metadata":{{"finalizers":null}}}}'`)"""
)
"""Next step for the user where custom objects outlive their operator."""
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
        failures = [
            Failure(name, "is required, as a string")
            for name in ("kubeconfig", "source")
            if not isinstance(inputs.get(name), str)
        ]
        definitions = inputs.get("definitions")
        if not isinstance(definitions, Mapping) or not definitions:
            failures.append(Failure("definitions", "is required: a mapping of CRD names to sha256 digests"))
        if not isinstance(inputs.get("retain", False), bool):
            failures.append(Failure("retain", "must be true or false"))
        known = {"kubeconfig", "source", "definitions", "retain"}
        failures += [
            Failure(name, "is not a property of this type") for name in sorted(inputs.keys() - known)
        ]
        return failures

    def identify(self, inputs: Inputs) -> str:
        return "custom-resource-definitions"

    def create(self, inputs: Inputs, progress: HandlerProgress) -> Outputs:
        _apply(inputs, progress)
        return {}

    def update(self, old: Inputs, new: Inputs, progress: HandlerProgress) -> Outputs:
        """Apply changed definitions; on the same cluster and without `retain`, remove unrequested ones."""
        _apply(new, progress)
        if old["kubeconfig"] == new["kubeconfig"] and not new.get("retain", False):
            dropped = old["definitions"].keys() - new["definitions"].keys()
            _connect(new["kubeconfig"]).remove(dropped, progress)
        return {}

    def read(self, inputs: Inputs, outputs: Outputs, progress: HandlerProgress) -> ReadResult:
        """Report missing and changed definitions. Raises ResourceNotFound where all are missing."""
        found = _connect(inputs["kubeconfig"]).digests()
        definitions = {name: found[name] for name in inputs["definitions"] if name in found}
        if not definitions:
            raise ResourceNotFound(inputs["source"])
        return ReadResult({**inputs, "definitions": definitions}, outputs)

    def delete(self, inputs: Inputs, progress: HandlerProgress) -> None:
        """Remove them, and with them every object of their kinds, unless `retain` is set."""
        if not inputs.get("retain", False):
            _connect(inputs["kubeconfig"]).remove(inputs["definitions"], progress)


def _apply(inputs: Inputs, progress: HandlerProgress) -> None:
    """Update definitions that differ from the bundle."""
    manifests = load_bundle(Path(inputs["source"]), inputs["definitions"])
    server = _connect(inputs["kubeconfig"])
    found = server.digests()
    server.apply([m for name, m in manifests.items() if found.get(name) != digest(m)], progress)


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


def _connect(kubeconfig: str) -> DefinitionsClient:
    return DefinitionsClient(ApiServer.of(kubeconfig))


class DefinitionsClient:
    """The API server's definitions, a few requests at once."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api

    def digests(self) -> dict[str, str]:
        """The digest of each definition that exists; empty for one that is not ours."""
        with refusals(EXPECTED):
            found = json.loads(self._api.read(_COLLECTION, accept=METADATA_ONLY))
        metadata = [item["metadata"] for item in found.get("items") or []]
        return {each["name"]: each.get("annotations", {}).get(DIGEST, "") for each in metadata}

    def apply(self, manifests: Collection[Manifest], progress: HandlerProgress) -> None:
        """Apply and wait until the API server serves them."""

        def one(manifest: Manifest) -> None:
            name = manifest["metadata"]["name"]
            with refusals(EXPECTED):
                applied = self._api.apply(f"{_COLLECTION}/{name}", _with_digest(manifest))
            deadline = Deadline(ESTABLISHED_SECONDS, f"{name} is not established", EXPECTED, progress)
            while not _is_established(applied):
                deadline.wait()
                applied = self._find(name)

        _in_parallel(one, manifests, "applied", progress)

    def remove(self, names: Collection[str], progress: HandlerProgress) -> None:
        """Remove those that exist and wait until they are deleted."""

        def one(name: str) -> None:
            with refusals(EXPECTED):
                is_there = self._api.delete(f"{_COLLECTION}/{name}")
            late = f"{name} is not deleted: its objects have finalizers"
            deadline = Deadline(REMOVED_SECONDS, late, EXPECTED, progress, REMOVE.format(name=name))
            while is_there:
                deadline.wait()
                is_there = self._find(name) is not None

        _in_parallel(one, names, "removed", progress)

    def _find(self, name: str) -> Manifest | None:
        with refusals(EXPECTED):
            found: Manifest | None = self._api.find(f"{_COLLECTION}/{name}")
        return found


def _in_parallel(
    one: Callable[[T], None], items: Collection[T], done: str, progress: HandlerProgress
) -> None:
    with ThreadPoolExecutor(WORKERS) as pool:
        for count, _ in enumerate(pool.map(one, items), start=1):
            progress.log(f"{count} of {len(items)} definitions {done}")


def _with_digest(manifest: Manifest) -> Manifest:
    metadata = manifest["metadata"]
    annotations = {**(metadata.get("annotations") or {}), DIGEST: digest(manifest)}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def _is_established(definition: Manifest | None) -> bool:
    conditions = (definition or {}).get("status", {}).get("conditions") or []
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)
