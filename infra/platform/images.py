"""References of images, taken apart as charts want them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from infra.charts import Manifest


def split(reference: str) -> tuple[str, str, str]:
    """Return registry, repository and tag of a full reference: `ghcr.io/a/b:1` → (`ghcr.io`, `a/b`, `1`)."""
    path, _, tag = reference.rpartition(":")
    registry, _, repository = path.partition("/")
    return registry, repository, tag


def edit_deployments(
    manifests: tuple[Manifest, ...], edit: Callable[[dict[str, Any]], dict[str, Any]]
) -> tuple[Manifest, ...]:
    """Return the manifests with the pod spec of each Deployment edited, for operators without a chart."""
    return tuple(_edited(each, edit) if each["kind"] == "Deployment" else each for each in manifests)


def _edited(manifest: Manifest, edit: Callable[[dict[str, Any]], dict[str, Any]]) -> Manifest:
    spec = manifest["spec"]
    template = {**spec["template"], "spec": edit(spec["template"]["spec"])}
    return {**manifest, "spec": {**spec, "template": template}}
