"""Loads all policies of the pack: the `POLICY` of every module in the topic folders."""

from importlib import import_module
from pathlib import Path

from policies.policy import Policy

NAME = "trainyard"
VERSION = "0.1.0"
TOPICS = ("residency", "spot", "security", "cost", "fabric")


def load() -> tuple[Policy, ...]:
    """All policies, by topic and then by file name."""
    here = Path(__file__).parent
    files = [file for topic in TOPICS for file in sorted((here / topic).glob("[!_]*.py"))]
    return tuple(import_module(f"policies.{file.parent.name}.{file.stem}").POLICY for file in files)


POLICIES = load()
