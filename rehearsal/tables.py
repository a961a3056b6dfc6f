"""Reads the YAML tables beside the fakes' code, and caches them."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import yaml


@cache
def table(package: str, name: str) -> Mapping[str, Any]:
    """Return the table of a package's `name.yaml`, by resource type or by name; read once."""
    text = files(package).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    rows: Mapping[str, Any] = yaml.safe_load(text)
    return rows
