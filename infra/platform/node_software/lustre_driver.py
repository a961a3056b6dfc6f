"""Manifests of the Azure Managed Lustre CSI driver's node plugin (lustre_driver.yaml)."""

from collections.abc import Iterator
from pathlib import Path

import yaml

from infra.common.charts import Manifest
from infra.platform.base import metadata

MANIFESTS = Path(__file__).with_suffix(".yaml")


def manifests() -> Iterator[Manifest]:
    """Yield the driver's objects."""
    for manifest in yaml.safe_load_all(MANIFESTS.read_text(encoding="utf-8")):
        yield {**manifest, "metadata": metadata(**manifest["metadata"])}
