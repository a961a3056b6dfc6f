"""Types of a cloud's state backend: its requested location, and the resulting settings and permissions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StateLocation:
    """Requested location of the state backend."""

    bucket: str
    region: str
    tags: Mapping[str, str]
    """Tags of the stack, such as its owner."""


@dataclass(frozen=True)
class BackendSetup:
    """Settings of the engine for the backend, and permissions that the engine's user needs."""

    url: str
    """Value of `PULUMI_BACKEND_URL`."""
    secrets_provider: str
    """Value of `--secrets-provider` for a new stack."""
    rights: Mapping[str, Any]
    """Minimum permissions: an IAM policy on AWS, roles by resource on Azure and Google Cloud."""
