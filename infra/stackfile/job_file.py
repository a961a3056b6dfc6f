"""Loads job files, and reports all problems at once."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.errors import Problem
from infra.stackfile.finding import run
from infra.stackfile.job import JobSpec
from infra.stackfile.job_validators import CHECKS as JOB_CHECKS
from infra.stackfile.parsing import parsed
from infra.stackfile.source import SpecSource, read_whole

if TYPE_CHECKING:
    from infra.stackfile.stack import Stack


def load_job(path: Path, defaults: Mapping[str, Any] | None = None, stack: "Stack | None" = None) -> JobSpec:
    """Read a job.yaml, for a stack if one is given; `defaults` are used for absent keys.

    Raises:
        InputError: with every problem of the file, and what prevents the job from running on the stack.
    """
    data, source = read_whole(path)
    return parse_job({**(defaults or {}), **data}, source, stack)


def parse_job(data: Any, source: SpecSource | None = None, stack: "Stack | None" = None) -> JobSpec:  # noqa: ANN401
    """Read a job from plain data, as `load_job` reads a file."""
    source = source or SpecSource("job", key="job")

    def on_stack(job: JobSpec) -> list[Problem]:
        if stack is None:
            return []
        from infra.stackfile.job_on_stack_validators import CHECKS  # imports what only stacks need

        sections = {name: getattr(stack, name) for name in type(stack).model_fields}
        return run(CHECKS, {"job", *sections}, {"job": job, **sections}, source)

    return parsed(JobSpec, data, source, lambda _: JOB_CHECKS, of_whole=on_stack)
