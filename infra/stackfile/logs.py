"""The stack file's `logs` section: whether and for how long the logs of teams' pods are retained."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from infra.stackfile.base import Boolean, Integer, Spec


class LogsSpec(Spec):
    """Logs of team pods, stored on the shared filesystem."""

    kept: Boolean = Field(
        default=True, description="whether logs are retained after their pod has been deleted"
    )
    retention_days: Annotated[Integer, Field(ge=1, le=3650)] = Field(
        default=30, description="days after its last line until a log is deleted"
    )
