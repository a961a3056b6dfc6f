"""`Finder`: all ranks find the newest checkpoint that is intact and readable, and load it.

A start never begins at step 0 where checkpoints exist, and nothing is set aside that is not known to be
damaged: a checkpoint that cannot be read stays where it is, and the newest one that can be read is offered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, Literal, NamedTuple, TypeVar

from trainyard_train.checkpointing.checkpoint import (
    Checkpoint,
    CheckpointStore,
    DamagedError,
    InUseError,
    Manifest,
    UnreadableError,
    explained,
    step_name,
)
from trainyard_train.config_base import RefusalError
from trainyard_train.contract import EXIT_UNUSABLE
from trainyard_train.elasticity.node_memory import NodeMemory
from trainyard_train.observability.rank_log import log_line
from trainyard_train.parallelism.mesh import Mesh

T = TypeVar("T")

DATASET: Final = "dataset"
"""Key of a run's identity: identifies the dataset, as far as it determines the order of samples."""
_WHOSE: Final = {DATASET: "the present data"}
_ADVICE: Final = {
    DATASET: "; with other data the order of samples would change: set data.path to the previous data, or"
    " start a new run"
}


class MismatchError(RefusalError):
    """A checkpoint is of another run: the message lists each setting that differs."""


class UnsharedError(OSError):
    """A rank cannot read what rank 0 can: the checkpoint is whole, and is not quarantined."""


class UnusableError(RefusalError):
    """There are checkpoints, and none can be used: nothing but a person can tell what to do."""

    exit_code = EXIT_UNUSABLE


class Problem(NamedTuple):
    """Why a checkpoint is not used."""

    kind: Literal["damaged", "unreadable", "unshared", "gone", ""]
    """`gone`: a running process has deleted it, and has a newer one; empty if nothing is wrong."""
    text: str = ""


@dataclass
class Finder:
    """Finds and loads checkpoints; all ranks call the same."""

    store: CheckpointStore
    mesh: Mesh
    memory: NodeMemory
    skip_unreadable: bool = False
    """Whether to use an older checkpoint where the newest one cannot be read."""
    from_scratch: bool = False
    """Whether to begin at step 0 where there are checkpoints and none can be used."""
    lock_seconds: float = 0
    """Seconds to wait for another process that uses the store; a node's failure may hold its lock as long."""
    _is_locked: bool = False
    _attempts: count[int] = field(default_factory=count)
    """Numbers the attempts at finding a checkpoint and at loading one."""
    _problems: dict[int, Problem] = field(default_factory=dict)
    """Checkpoints that were tried and cannot be used, by step; the same on all ranks."""
    _damages: dict[int, str] = field(default_factory=dict)
    """What was done with damaged ones, by step, at rank 0."""

    def newest(
        self, identity: Mapping[str, Any], *, whole: bool = False
    ) -> tuple[Checkpoint | None, list[str]]:
        """The checkpoint to resume from, the same on all ranks, and what was wrong with newer ones.

        The ranks look at the sizes of all files; what is in them is verified when it is loaded. Rank 0
        quarantines damaged checkpoints once an intact one is known, and deletes staging data of dead runs.

        Args:
            identity: values that the checkpoint must have in common with this run.
            whole: verify all that is in it now, too, each rank a part of the files. It is always done where
                a load that fails has no older one to fall back to, or a newer one cannot be used.

        Raises:
            InUseError: another run uses the store.
            MismatchError: the checkpoint is of a run with another identity.
            UnreadableError: the store, or a checkpoint, cannot be read; nothing was changed.
            UnusableError: there are checkpoints, and none can be used; nothing was changed.
            UnsharedError: on every rank, if one cannot read a checkpoint that rank 0 finds whole.
        """
        checkpoint = None
        while True:
            key = f"find/{next(self._attempts)}"
            steps = self._candidates(key)
            if not steps:
                break
            whole_now = whole or len(steps) == 1 or bool(self._problems) or self.from_scratch
            checkpoint, problem = self._look_at_part(steps[0], whole_now)
            if not self._note(key, steps[0], problem):
                break
            checkpoint = None
        self._refuse_unreadable(checkpoint)
        if checkpoint is None:
            self._refuse_unusable(f"{key}/left")
        elif mismatch := _mismatch(checkpoint, identity):
            self._refuse(MismatchError(mismatch))
        if self.mesh.is_rank0:
            self._set_damaged_aside(checkpoint)
            self._collect_garbage()
        damages = self.mesh.broadcast(f"{key}/damages", json.dumps([*self._damages.values()]))
        return checkpoint, json.loads(damages)

    def load(
        self,
        identity: Mapping[str, Any],
        restore: Callable[[Checkpoint, str], T],
        found: tuple[Checkpoint | None, list[str]] | None = None,
    ) -> tuple[Checkpoint | None, list[str], T | None]:
        """Restore the newest whole checkpoint.

        Args:
            identity: see `newest`.
            restore: takes a checkpoint and a prefix for keys; raises DamagedError or UnreadableError on all
                ranks if it cannot be used.
            found: result of `newest`, which is called if it is not given.

        Returns:
            the checkpoint, what was wrong with newer ones, and what `restore` returned.

        Raises:
            InUseError, MismatchError, UnreadableError, UnusableError, UnsharedError: as `newest`.
        """
        checkpoint, damages = found or self.newest(identity)
        while checkpoint:
            key = f"load/{next(self._attempts)}"
            try:
                restored = restore(checkpoint, key)
                checkpoint.held.files.clear()  # the next captures overwrite this memory
                return checkpoint, damages, restored
            except DamagedError as error:
                self._note(key, checkpoint.manifest.step, Problem("damaged", str(error)))
            except UnreadableError as error:
                self._note(key, checkpoint.manifest.step, Problem("unreadable", str(error)))
            checkpoint, damages = self.newest(identity)
            if not checkpoint:
                raise UnsharedError(
                    f"{'; '.join(damages)}: part of it was loaded: start again, without a checkpoint"
                )
        return None, damages, None

    def _candidates(self, key: str) -> list[int]:
        """The two newest steps that are not known to be of no use."""
        answer: dict[str, Any] = {}
        if self.mesh.is_rank0:
            try:
                if not self._is_locked:
                    self.store.lock(self.lock_seconds)
                    self._is_locked = True
                steps = self.store.committed()
                answer = {"steps": [step for step in steps if step not in self._problems][:2]}
            except InUseError as error:
                answer = {"refused": str(error)}
            except OSError as error:
                answer = {"error": explained(error)}
        answer = json.loads(self.mesh.broadcast(f"{key}/steps", json.dumps(answer)))
        if "refused" in answer:
            self._refuse(InUseError(answer["refused"]))
        if "error" in answer:
            self._refuse(
                UnreadableError(
                    f"the checkpoints in {self.store.where} cannot be listed: {answer['error']};"
                    " nothing was changed"
                )
            )
        found: list[int] = answer["steps"]
        return found

    def _collect_garbage(self) -> None:
        try:
            self.store.collect_garbage()
        except OSError as error:
            log_line(f"what dead runs have left in {self.store.where} cannot be deleted: {explained(error)}")

    def _look_at_part(self, step: int, whole: bool) -> tuple[Checkpoint | None, Problem]:
        """Look at the files that are this rank's to look at; returns what is wrong, too."""
        try:
            checkpoint = self.store.open(step)
            checkpoint.held.files.update(self._held(checkpoint.manifest))
            readers = checkpoint.readers(self.mesh.world_size)
            mine = [name for name, reader in readers.items() if reader == self.mesh.rank]
            for name in mine:
                checkpoint.file(name).check_size()
            if whole:
                checkpoint.verify(mine)
        except DamagedError as error:
            return None, Problem("damaged", f"{error} (reported by {self.mesh.own_name})")
        except OSError as error:
            return None, Problem("unreadable", f"{explained(error)} (reported by {self.mesh.own_name})")
        return checkpoint, Problem("")

    def _held(self, manifest: Manifest) -> dict[str, memoryview]:
        """The files of a checkpoint that this node's memory has."""
        found = self.memory.find({name: each.sha256 for name, each in manifest.files.items()})
        return {name: each for name, each in found.items() if len(each) == manifest.files[name].size}

    def _note(self, key: str, step: int, own: Problem) -> bool:
        """Agree on what is wrong with a checkpoint, and note it; returns whether anything is.

        Raises:
            UnsharedError: on every rank, if one cannot read what rank 0 finds whole.
        """
        texts = self.mesh.gather(f"{key}/problems", json.dumps(own))
        found = [Problem(*json.loads(text)) for text in texts]
        found = sorted((each for each in found if each.kind), key=lambda each: each.kind)  # damaged first
        if not found:
            return False
        agreed = self._checked(step, found[0]) if self.mesh.is_rank0 else found[0]
        agreed = Problem(*json.loads(self.mesh.broadcast(f"{key}/verdict", json.dumps(agreed))))
        if agreed.kind == "unshared":
            self._refuse(UnsharedError(agreed.text))
        if agreed.kind != "gone":
            self._problems[step] = agreed
        return True

    def _checked(self, step: int, problem: Problem) -> Problem:
        """Check at rank 0 what a rank has reported.

        A rank whose folder is not the one that all share, or whose node alters what it reads, must not cost
        the others what they have.
        """
        try:
            if step not in self.store.committed():
                return Problem("gone")
            if problem.kind == "damaged":
                self.store.open(step).verify()
        except DamagedError:
            return problem
        except OSError as error:
            return Problem("unreadable", explained(error))
        if problem.kind == "unreadable":
            return problem
        return Problem(
            "unshared",
            f"{step_name(step)} in {self.store.where}: {problem.text}, but rank 0 on {self.mesh.node}"
            " reads it intact: check that all ranks share run_dir, and check the node that reported this;"
            " nothing was changed",
        )

    def _refuse_unreadable(self, checkpoint: Checkpoint | None) -> None:
        """Raise UnreadableError for newer checkpoints, unless they are to be skipped."""
        unreadable = [
            f"{step_name(step)}: {text}"
            for step, (kind, text) in self._problems.items()
            if kind == "unreadable"
        ]
        if not unreadable or (self.skip_unreadable and checkpoint):
            return
        offer = "no older one can be read"
        if checkpoint:
            offer = (
                f"the newest one that can be read is {checkpoint.name}; to resume from it, set"
                " checkpoint.skip_unreadable, or TRAINYARD_SKIP_UNREADABLE=1"
            )
        where = self.store.where
        self._refuse(
            UnreadableError(
                f"a checkpoint in {where} cannot be read: {'; '.join(unreadable)}; nothing was changed;"
                f" {offer}"
            )
        )

    def _refuse_unusable(self, key: str) -> None:
        """Raise UnusableError where there are checkpoints, unless the run may begin at step 0."""
        left: list[str] = []
        if self.mesh.is_rank0:
            left = [f"{step_name(step)}: {text}" for step, (_, text) in self._problems.items()]
            left += [f"{name}: was set aside before" for name in self.store.quarantined()]
        left = json.loads(self.mesh.broadcast(key, json.dumps(left)))
        if left and not self.from_scratch:
            first = f"{self.store.where} has checkpoints, and none can be used; nothing was changed:"
            last = (
                f"restore one of them from {self.store.backups}; or begin again at step 0 by --from-scratch,"
                " or TRAINYARD_FROM_SCRATCH=1"
            )
            self._refuse(UnusableError("\n".join([first, *left, last])))

    def _refuse(self, error: Exception) -> None:
        self.mesh.shutdown_barrier()
        raise error

    def _set_damaged_aside(self, checkpoint: Checkpoint | None) -> None:
        """Quarantine what is known to be damaged, and let `latest` name the one that is used."""
        damaged = {step: text for step, (kind, text) in self._problems.items() if kind == "damaged"}
        for step in (step for step in damaged if step not in self._damages):
            try:
                fate = f"quarantined as {self.store.quarantine(step)}"
            except OSError as error:
                fate = f"it cannot be set aside, and stays: {explained(error)}"
            self._damages[step] = f"{step_name(step)}: {damaged[step]}; {fate}"
            log_line(f"skipping a damaged checkpoint: {self._damages[step]}")
        if damaged and checkpoint:
            try:
                self.store.point_latest_at(checkpoint.manifest.step)
            except OSError as error:
                log_line(f"`latest` in {self.store.where} cannot be changed: {explained(error)}")


def _mismatch(checkpoint: Checkpoint, identity: Mapping[str, Any]) -> str:
    """Differences between a checkpoint and a run that would resume from it, as text; empty if none."""
    if checkpoint.manifest.state.get("imported"):  # imported checkpoints have no run's identity
        return ""
    saved = checkpoint.manifest.identity
    differences = [
        f"{key}: the checkpoint has {saved.get(key)!r}, {_WHOSE.get(key, 'the configuration')}"
        f" {identity.get(key)!r}{_ADVICE.get(key, '')}"
        for key in sorted({*saved, *identity})
        if saved.get(key) != identity.get(key)
    ]
    if not differences:
        return ""
    what = (
        f"{checkpoint.name} in {checkpoint.store.where} belongs to another run; choose another run_dir, or"
        " change:"
    )
    return "\n".join([what, *differences])
