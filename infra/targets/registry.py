"""The targets that a stack file can name: a new target adds its line here."""

from __future__ import annotations

from collections.abc import Mapping

from infra.targets.target import Target, imported

TARGETS: Mapping[str, str] = {
    "local": "infra.targets.local.target:TARGET",
    "aws": "infra.targets.aws.target:TARGET",
    "gcp": "infra.targets.gcp.target:TARGET",
    "azure": "infra.targets.azure.target:TARGET",
    "onprem": "infra.targets.onprem.target:TARGET",
    "coreweave": "infra.targets.coreweave.target:TARGET",
}
"""Kind → `module:name`, imported on use: a stack has one target."""


def target_of(kind: str) -> Target:
    """Return the target of a kind that is registered."""
    found: Target = imported(TARGETS[kind])
    return found
