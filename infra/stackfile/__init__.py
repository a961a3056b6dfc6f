"""Models of stack, fleet and job files, and the functions that load and parse them.

Each name is imported when it is first asked for: the models of stacks take a fifth of a second, and a command
about one job needs none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infra.stackfile.fleet import Fleet
    from infra.stackfile.job import JobSpec
    from infra.stackfile.job_file import load_job, parse_job
    from infra.stackfile.stack import Stack
    from infra.stackfile.stack_file import load, load_fleet, parse, parse_fleet

__all__ = ["Fleet", "JobSpec", "Stack", "load", "load_fleet", "load_job", "parse", "parse_fleet", "parse_job"]
_MODULES = {
    "Fleet": "fleet",
    "JobSpec": "job",
    "Stack": "stack",
    "load_job": "job_file",
    "parse_job": "job_file",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'stack_file')}"), name)
