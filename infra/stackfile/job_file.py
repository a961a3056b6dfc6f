"""Loads job files, and reports all problems at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.stackfile.job import JobSpec
from infra.stackfile.job_validators import CHECKS as JOB_CHECKS
from infra.stackfile.parsing import parsed
from infra.stackfile.source import SpecSource, read_whole


def load_job(path: Path, defaults: Mapping[str, Any] | None = None) -> JobSpec:
    """Read a job.yaml; `defaults` are used for absent keys. Raises InputError as `load` does."""
    data, source = read_whole(path)
    return parse_job({**(defaults or {}), **data}, source)


def parse_job(data: Any, source: SpecSource | None = None) -> JobSpec:  # noqa: ANN401 -- whatever the user wrote
    """Read a job from plain data, as `parse` reads a stack."""
    return parsed(JobSpec, data, source or SpecSource("job", key="job"), lambda _: JOB_CHECKS)
