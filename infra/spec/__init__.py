"""The model of a stack file: typed, frozen, pure; `load` and `parse` read it."""

from infra.spec.fleet import Fleet
from infra.spec.job import JobSpec
from infra.spec.load import load, load_fleet, load_job, parse, parse_fleet, parse_job
from infra.spec.stack import Stack

__all__ = [
    "Fleet",
    "JobSpec",
    "Stack",
    "load",
    "load_fleet",
    "load_job",
    "parse",
    "parse_fleet",
    "parse_job",
]
