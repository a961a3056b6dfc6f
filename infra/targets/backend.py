"""Types of a cloud's state backend: what to create, and the settings that result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StateLocation:
    """What is asked for."""

    bucket: str
    region: str
    tags: Mapping[str, str]
    """Tags of the stack, such as its owner."""


@dataclass(frozen=True)
class BackendSetup:
    """The engine's settings, and the rights that its user needs."""

    url: str
    """Value of `PULUMI_BACKEND_URL`."""
    secrets_provider: str
    """Value of `--secrets-provider` for a new stack."""
    rights: Mapping[str, Any]
    """Minimum permissions: an IAM policy on AWS, roles by resource on Google Cloud."""
