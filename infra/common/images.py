"""Parses image references, and edits the images and Deployments in manifests."""

from collections.abc import Callable, Mapping
from typing import Any

from infra.common.charts import Manifest

_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")


def split(reference: str) -> tuple[str, str, str]:
    """Return registry, repository and tag of a full reference: `ghcr.io/a/b:1` → (`ghcr.io`, `a/b`, `1`).

    A digest remains with the tag, where charts put it behind a colon: `1@sha256:…`. A reference without
    a tag gives an empty one.
    """
    named, at, digest = reference.partition("@")
    registry, _, path = named.partition("/")
    repository, _, tag = path.partition(":")
    return registry, repository, f"{tag}{at}{digest}"


def with_images(manifest: Manifest, relocate: Callable[[str], str]) -> Manifest:
    """Return the manifest with the image of each container, wherever its pods are, put through `relocate`."""
    moved: Manifest = _moved(manifest, relocate)
    return moved


def _moved(value: Any, relocate: Callable[[str], str]) -> Any:  # noqa: ANN401 -- any part of a manifest
    if isinstance(value, Mapping):
        return {
            key: [_at(each, relocate) for each in part] if key in _CONTAINERS else _moved(part, relocate)
            for key, part in value.items()
        }
    return [_moved(each, relocate) for each in value] if isinstance(value, list) else value


def _at(container: Mapping[str, Any], relocate: Callable[[str], str]) -> Mapping[str, Any]:
    return {**container, "image": relocate(container["image"])} if "image" in container else container


def parts(reference: str) -> dict[str, str]:
    """Take a reference apart as NVIDIA's charts and resources want it: repository, image, version.

    The version is the tag of `split`.
    """
    registry, path, version = split(reference)
    repository, _, image = f"{registry}/{path}".rpartition("/")
    return {"repository": repository, "image": image, "version": version}


def edit_deployments(
    manifests: tuple[Manifest, ...], edit: Callable[[dict[str, Any]], dict[str, Any]]
) -> tuple[Manifest, ...]:
    """Return the manifests with the pod spec of each Deployment edited, for operators without a chart."""
    return tuple(_edited(each, edit) if each["kind"] == "Deployment" else each for each in manifests)


def _edited(manifest: Manifest, edit: Callable[[dict[str, Any]], dict[str, Any]]) -> Manifest:
    spec = manifest["spec"]
    template = {**spec["template"], "spec": edit(spec["template"]["spec"])}
    return {**manifest, "spec": {**spec, "template": template}}
