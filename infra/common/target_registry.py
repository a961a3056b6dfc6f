"""Table of the targets by the `kind` that a stack file names, each imported on first use."""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # types only: the specs import this module, and targets import the specs
    from infra.targets.target import Target

TARGETS: Mapping[str, str] = {
    "local": "infra.targets.local.target:TARGET",
    "aws": "infra.targets.aws.target:TARGET",
    "gcp": "infra.targets.gcp.target:TARGET",
    "azure": "infra.targets.azure.target:TARGET",
    "onprem": "infra.targets.onprem.target:TARGET",
    "coreweave": "infra.targets.coreweave.target:TARGET",
}
"""Kind → `module:name`, imported on use: a stack has one target."""


def target_of(kind: str) -> "Target":
    """Return the target of a kind that is registered."""
    found: Target = imported(TARGETS[kind])
    return found


def imported(path: str) -> Any:  # noqa: ANN401 -- whatever has that name
    """Return what `module:name` names."""
    module, name = path.split(":")
    return getattr(import_module(module), name)
