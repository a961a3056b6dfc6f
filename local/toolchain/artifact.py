"""`Artifact` is the base class of what the toolchain plans, makes and locates. `CachedArtifact` keeps one in
the store under a key of its inputs.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from engine.progress import Task
from infra.errors import Problem
from local.toolchain.store import ArtifactStore, Entry


class Action(StrEnum):
    """Action of the toolchain on an artifact, done or planned."""

    PRESENT = "present"
    DOWNLOAD = "download"
    BUILD = "build"
    INSTALL = "install"
    ASSEMBLE = "assemble"


class Lane(StrEnum):
    """Kind of work that runs one at a time: a compiler uses all cores, a download the whole line."""

    COMPILE = "compile"
    NETWORK = "network"
    ASSEMBLE = "assemble"


@dataclass(frozen=True)
class PlanStep:
    """One line of a plan."""

    name: str
    action: Action
    why: str
    """Reason in words: where the artifact was found, or why it must be made in this way."""


class Artifact(ABC):
    """A product of the toolchain, with one or more names."""

    name: str
    """Name with its kind: `binary/kubernetes`."""
    needs: tuple[str, ...] = ()
    """Names of artifacts that must exist before this one is made."""
    lane: Lane = Lane.ASSEMBLE
    disk_mib: int = 0
    """Free disk space in MiB that making the artifact needs at most."""

    @property
    def provides(self) -> tuple[str, ...]:
        """Every name under which it has a path."""
        return (self.name,)

    @abstractmethod
    def plan(self) -> PlanStep:
        """Report what exists, or what `make` would do; changes nothing."""

    @abstractmethod
    def make(self, task: Task) -> None:
        """Provide it; raise TrainyardError, leaving nothing half done."""

    @abstractmethod
    def paths(self) -> Mapping[str, Path]:
        """Name → path, for each name that it provides; valid once it exists."""

    def problems(self) -> list[Problem]:
        """Return the problems of this host that would make `make` fail, as far as they are known."""
        return []


class CachedArtifact(Artifact):
    """An artifact in the store, under a key made of all its inputs."""

    store: ArtifactStore

    @cached_property
    def entry(self) -> Entry:
        """Entry of the artifact in the store: its name and key."""
        kind, name = self.name.split("/", 1)
        return Entry(kind, name, self.key())

    @property
    def folder(self) -> Path:
        """Folder of the artifact in the store."""
        return self.store.folder(self.entry)

    @abstractmethod
    def key(self) -> str:
        """Hash of all its inputs."""

    @abstractmethod
    def intention(self) -> PlanStep:
        """Return how it would be made."""

    @abstractmethod
    def fill(self, folder: Path, task: Task) -> str:
        """Write it into `folder`; return its origin in words."""

    def plan(self) -> PlanStep:
        seal = self.store.find_seal(self.entry)
        return (
            PlanStep(self.name, Action.PRESENT, f"in the cache: {seal.origin}") if seal else self.intention()
        )

    def make(self, task: Task) -> None:
        self.store.make(self.entry, lambda folder: self.fill(folder, task))
