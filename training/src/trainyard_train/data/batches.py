"""`Batches`: wraps a DataLoader or another iterable, so that a run resumes in the middle of a pass over the
data.

A checkpoint counts the batches of finished steps, not those that workers have prefetched. A resumed
`DataLoader` starts at the next batch without reading the earlier ones; of an `IterableDataset` or any other
iterable, the earlier batches are read and dropped.

The order of the batches is reproduced by restoring the states that the random generators had at the start of
the pass. The random numbers that a worker draws for a batch depend on no earlier batch.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import Any, Generic, TypeVar, cast

import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset

from trainyard_train.checkpointing import generators
from trainyard_train.config_base import ConfigError
from trainyard_train.observability.rank_log import log_line
from trainyard_train.parallelism.mesh import Mesh

Batch = TypeVar("Batch")


@dataclass
class Batches(Generic[Batch]):
    """One rank's batches, pass after pass; iterate it instead of the loader."""

    name: str
    loader: Iterable[Batch]
    mesh: Mesh
    per_step: int | None
    """Batches of this rank that one step takes (gradient accumulation); None if the number varies."""
    ahead: int
    """Batches that the loop has read ahead, which are in no finished step yet."""
    epoch: Callable[[], int | None]
    """Returns the epoch that the run is in; None if it counts none."""
    _pass: int = -1
    """Number of the current pass; −1 before the first."""
    _finished: int = 0
    """Batches of this pass that are in finished steps."""
    _samples: int = 0
    """Samples of this pass that all ranks together had finished before the number of ranks changed."""
    _in_epoch: int | None = None
    _handed: int = 0
    _short: bool = False
    """Whether the last step took fewer batches than `per_step`, which only the last step of a pass may."""
    _under_way: bool = False
    _left: bool = False
    """Whether the loop exited the last pass before its end."""
    _resumed: bool = False
    _looks: int = 0
    """Earlier passes of this epoch that ended without a step, such as a look at the first batches."""
    _begin: dict[str, Any] | None = None
    """States of the random generators at the start of this pass, and the digest of its first batch."""
    _now: dict[str, Any] | None = None
    """States of the random generators at the last finished step, in a resumed run."""
    _of_data: list[Any] = field(init=False)
    """Generators that the dataset draws from in this process."""
    _at_first: list[dict[str, int]] = field(init=False)
    """Counters of the samplers before anything was read."""
    _source: Iterable[Batch] = field(init=False)
    _order: _Order | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._source, self._at_first, self._of_data = self.loader, self._numbers(), []
        if not getattr(self.loader, "num_workers", 0):
            self._of_data = generators.within(getattr(self.loader, "dataset", self.loader))
        lazy = inspect.isgeneratorfunction(type(self.loader).__iter__)  # starts too late, as Accelerate's
        is_ordered = isinstance(self.loader, DataLoader) and not isinstance(
            self.loader.dataset, IterableDataset
        )
        if is_ordered and not lazy:
            self._order = _Order()
            self._source = _ordered_by(self._order, self.loader, self.mesh.rank)
        elif getattr(self.loader, "persistent_workers", False) and not lazy:
            self._source = copy.copy(self.loader)  # persistent workers would continue their generators
            self._source.__dict__["persistent_workers"] = False

    def __len__(self) -> int:
        """Batches of a whole pass. Raises TypeError: the loader does not know."""
        return len(cast(Sized, self.loader))

    @property
    def batches_done(self) -> int:
        """Batches in finished steps, of the pass that is under way, or else of the one that begins next.

        For a loop that numbers its batches: `for number, batch in enumerate(loader, loader.batches_done)`.
        """
        return self._finished if self._under_way or self._continues() else 0

    @property
    def batch_index(self) -> int:
        """Index of the loop's batch in its pass: with `index = loader.batch_index` as its first line, a loop
        over `enumerate(loader)` is right in a resumed pass, too.
        """
        return self._handed - 1

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        """Whatever else the loader has, such as its `dataset`."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.__dict__["loader"], name)

    def __iter__(self) -> Iterator[Batch]:
        """The batches of the next pass; at first the remaining ones of the pass that the run resumed in.

        Raises:
            ConfigError: steps take other numbers of batches than they should.
        """
        if self._is_look():
            yield from self._look()
            return
        iterator = self._open()
        self._handed, self._under_way, self._left = self._finished, True, True
        try:
            for batch in iterator:
                if self._short:
                    raise ConfigError([self._wrong_count(self._handed - self._finished)])
                self._handed += 1
                yield batch
            self._left = False
        finally:
            self._under_way = False

    def close(self) -> None:
        """End workers that persist from pass to pass."""
        for each in (self._source, getattr(self._source, "base_dataloader", None)):
            if self._order is not None and (persistent := getattr(each, "_iterator", None)):
                persistent._shutdown_workers()

    def finish_step(self) -> None:
        """Count the batches of a step as finished.

        Raises:
            ConfigError: the loop took more batches than a step takes.
        """
        taken = self._handed - self._finished
        if self.per_step is None:
            self._finished += max(taken - self.ahead, 0)
            return
        if taken > self.per_step + self.ahead:
            raise ConfigError([self._wrong_count(taken)])
        self._short = 0 < taken < self.per_step
        self._finished += min(taken, self.per_step)

    def _wrong_count(self, taken: int) -> str:
        return (
            f"{self.name}: a step took {taken} batches; allowed: {self.per_step} (per_step), and {self.ahead}"
            " (ahead) that the loop reads ahead; set these with run.batches(loader, per_step=…, ahead=…),"
            " per_step=None if it varies"
        )

    def state_dict(self) -> dict[str, Any]:
        """The position, the same on all ranks."""
        return {
            "pass": self._pass,
            "finished": self._finished,
            "samples": self._samples,
            "looks": self._looks,
            "epoch": self._in_epoch,
            "ranks": self.mesh.world_size,
            "batch_size": self._batch_size(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a position, by as many ranks as there were or by others.

        Raises:
            ConfigError: these ranks cannot continue with this order.
        """
        self._pass, self._in_epoch = state["pass"], state["epoch"]
        self._finished, self._samples = state["finished"], state["samples"]
        self._looks, self._resumed = state.get("looks", 0), self._pass >= 0
        now = (self.mesh.world_size, self._batch_size())
        if now == (state["ranks"], state["batch_size"]):
            return
        done = self._samples + self._finished * state["ranks"] * (state["batch_size"] or 0)
        problem = self._cannot_go_on(done, state["ranks"])
        if done and problem:
            raise ConfigError([f"{self.name}: {problem}"])
        self._samples, self._finished = done, 0

    def private(self) -> dict[str, Any] | None:
        """States of the generators of this rank, when the pass began and now."""
        if self._begin is None:
            return None
        return {"begin": self._begin, "now": self._generators()}

    def load_private(self, state: dict[str, Any] | None, everywhere: dict[str, Any]) -> None:
        """Take back what `private` returned; None if this rank began no pass.

        Args:
            state: what `private` returned.
            everywhere: states of the process's own generators at that moment.
        """
        if state is not None:
            self._begin, self._now = state["begin"], {**state["now"], "all": everywhere}
            self._set_generators(state["now"])

    def begin_run(self) -> None:
        """Forget the passes before the run was loaded: another start makes them again."""
        self._pass, self._finished, self._in_epoch, self._begin = -1, 0, None, None
        self._left = False

    def _continues(self) -> bool:
        return self._resumed and self._in_epoch == self.epoch()

    def _is_look(self) -> bool:
        """Whether the next pass is one of which no step took a batch before the checkpoint."""
        if self._resumed and self._in_epoch is not None and self.epoch() is None:
            return True
        self._looks -= (look := self._continues() and self._looks > 0)
        return look

    def _look(self) -> Iterable[Batch]:
        if self._order is not None:
            self._order.begin(0, 0)
        return self._source

    def _open(self) -> Iterator[Batch]:
        continues, epoch = self._continues(), self.epoch()
        self._resumed = False
        if continues and self._begin is not None and self._now is not None:
            self._restore(self._begin)
            iterator = self._skip()
            self._restore(self._now)  # including what the program has drawn since the load
            self._compare(self._begin.get("first"))
            return iterator
        if not continues:
            looked = self._left and self._in_epoch == epoch and not self._finished
            self._looks = self._looks + 1 if looked else 0
            self._pass, self._finished, self._samples = self._pass + 1, 0, 0
        self._short, self._in_epoch = False, epoch
        self._begin = {**self._generators(), "all": generators.capture(self.mesh.device)}
        iterator = self._skip()
        self._begin["first"] = None if self._order is None else self._order.first
        return iterator

    def _compare(self, first: str | None) -> None:
        """Report it where a sampler does not give the order again that this pass was begun with."""
        if self._order is not None and None not in (first, self._order.first) and first != self._order.first:
            log_line(
                f"{self.name}: the sampler's order differs from its order at the start of this epoch, so some"
                " samples are repeated and others skipped; derive the order from set_epoch(number), or from a"
                " random generator that is an attribute of the sampler"
            )

    def _skip(self) -> Iterator[Batch]:
        """The remaining batches; draws from the generators what the beginning of a pass draws."""
        number = self._pass if self._in_epoch is None else self._in_epoch
        sampler = getattr(self.loader, "sampler", None)
        inner = getattr(getattr(self.loader, "batch_sampler", None), "sampler", None)
        for each in (self._source, getattr(self.loader, "batch_sampler", None), sampler, inner):
            if callable(set_epoch := getattr(each, "set_epoch", None)):
                set_epoch(number)
        if self._order is not None:
            self._order.begin(self._samples // self.mesh.world_size, self._finished)
            return iter(self._source)
        iterator = iter(self._source)
        for _ in islice(iterator, self._finished):  # now, while the generators have the saved state
            pass
        return iterator

    def _batch_size(self) -> int | None:
        size = getattr(self.loader, "batch_size", None)
        return size if isinstance(size, int) else None

    def _cannot_go_on(self, done: int, ranks: int) -> str:
        """Why these ranks cannot take over from others, or with other batches; empty if they can."""
        sampler = getattr(self.loader, "sampler", None)
        allowed = f"{ranks} ranks with the same batches as before, now there are {self.mesh.world_size}"
        if type(getattr(self.loader, "batch_sampler", None)) is not BatchSampler:
            return f"only batches of a DataLoader's batch_size can be redistributed; allowed: {allowed}"
        if not isinstance(sampler, DistributedSampler) and (ranks, self.mesh.world_size) != (1, 1):
            return f"only the order of a DistributedSampler can be redistributed; allowed: {allowed}"
        if done % self.mesh.world_size:
            return f"{done} finished samples do not divide by {self.mesh.world_size}; allowed: {allowed}"
        return ""

    def _samplers(self) -> list[Any]:
        """The loader's, and those within them, such as in the shards of Accelerate's on several ranks."""
        found: list[Any] = []
        for owner in chain([self.loader], found):  # grows during the loop
            for each in (getattr(owner, name, None) for name in ("sampler", "batch_sampler")):
                if hasattr(each, "__dict__") and not any(each is known for known in found):
                    found.append(each)
        return found

    def _own_generators(self) -> list[Any]:
        attributes = [getattr(self.loader, "generator", None), *self._of_data]
        for sampler in self._samplers():
            attributes += vars(sampler).values()
        return list({id(each): each for each in attributes if generators.is_generator(each)}.values())

    def _numbers(self) -> list[dict[str, int]]:
        """Counters of the samplers, such as epochs, and their arguments."""
        return [
            {name: value for name, value in vars(each).items() if type(value) is int}
            for each in self._samplers()
        ]

    def _generators(self) -> dict[str, Any]:
        pairs = zip(self._numbers(), self._at_first, strict=False)
        return {
            "own": [generators.state_of(each) for each in self._own_generators()],
            "counted": [dict(now.items() - before.items()) for now, before in pairs],
        }

    def _restore(self, states: dict[str, Any]) -> None:
        generators.restore(states["all"], self.mesh.device)
        self._set_generators(states)

    def _set_generators(self, states: dict[str, Any]) -> None:
        for generator, state in zip(self._own_generators(), states["own"], strict=False):
            generators.set_state(generator, state)
        for sampler, numbers in zip(self._samplers(), states.get("counted", ()), strict=False):
            vars(sampler).update(numbers)


class _Order:
    """Replaces a loader's batch sampler: begins at the given position, and numbers the batches for
    workers.
    """

    def __init__(self) -> None:
        self.batches: Iterable[Any] = ()
        self.first: str | None = None
        """Digest of the first batch of the pass, if this iterator started at it."""
        self.numbered = False
        self._samples, self._first, self._seed = 0, 0, 0
        self._drawn: Iterator[Any] | None = None
        """Order of the next pass."""

    def begin(self, samples: int, first: int) -> None:
        """Let the next pass begin after so many samples of this rank, and then after so many batches."""
        self._samples, self._first, self._drawn = samples, first, None
        if self.numbered:
            self._seed = int(torch.empty((), dtype=torch.int64).random_())

    def __len__(self) -> int:
        return len(cast(Sized, self.batches))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (whatever the sampler has)
        return getattr(self.__dict__["batches"], name)

    def __iter__(self) -> Iterator[Any]:
        """The order of a pass, drawn from the generators as they are now, and not at its first batch.

        A DataLoader that starts workers asks twice, and once if they persist: the order is drawn once.
        """
        if self._drawn is None:
            self._drawn = self._draw()
        return self._hand_out()

    def _hand_out(self) -> Iterator[Any]:
        drawn, self._drawn = self._drawn, None
        yield from drawn or self._draw()

    def _draw(self) -> Iterator[Any]:
        batches = self.batches
        if self._samples:
            assert isinstance(batches, BatchSampler)
            rest = islice(iter(batches.sampler), self._samples, None)
            batches = BatchSampler(rest, batches.batch_size, batches.drop_last)
        left: Iterator[Any] = iter(batches)
        head = list(islice(left, 1))
        self.first = None if self._samples else _digest(head)
        left = islice(chain(head, left), self._first, None)
        if not self.numbered:
            return left
        return (_Numbered(f"{self._seed} {at}", each) for at, each in enumerate(left, self._first))


def _digest(batch: list[Any]) -> str | None:
    """Digest of a batch's indices; None if they are neither numbers nor text."""
    try:
        return hashlib.sha256(json.dumps(batch).encode()).hexdigest()
    except TypeError:
        return None


@dataclass(frozen=True)
class _Numbered:
    """Indices to read as one batch, and the seed of its random numbers."""

    seed: str
    indices: Any


@dataclass(frozen=True)
class _Seeded:
    """A dataset in a worker, whose random numbers for a batch depend on no earlier batch."""

    dataset: Any
    rank: int
    within: list[Any] = field(default_factory=list)
    """Random generators within the dataset, such as those of its transforms."""

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, batch: _Numbered) -> Any:  # noqa: ANN401 (whatever a dataset has)
        self._seed(batch)
        return self.dataset[batch.indices]

    def __getitems__(self, batch: _Numbered) -> Any:  # noqa: ANN401
        self._seed(batch)
        if callable(many := getattr(self.dataset, "__getitems__", None)):
            return many(batch.indices)
        return [self.dataset[index] for index in batch.indices]

    def _seed(self, batch: _Numbered) -> None:
        digest = hashlib.sha256(f"{batch.seed} {self.rank}".encode()).digest()
        seed = int.from_bytes(digest[:8], "little")
        torch.manual_seed(seed)
        random.seed(seed)
        if numpy := sys.modules.get("numpy"):
            numpy.random.seed(seed % (1 << 32))
        for number, generator in enumerate(self.within, start=1):
            generators.seed(generator, seed ^ number)


def _ordered_by(order: _Order, loader: Any, rank: int) -> Any:  # noqa: ANN401
    """Copy a DataLoader so that it takes its batches, or single samples, in this order."""
    clone = object.__new__(type(loader))
    clone.__dict__.update(loader.__dict__)
    if base := loader.__dict__.get("base_dataloader"):  # Accelerate wraps a DataLoader
        clone.__dict__["base_dataloader"] = _ordered_by(order, base, rank)
        return clone
    # DataLoader's __setattr__ refuses such changes, since iterators may be active: here none is.
    kind = "sampler" if loader.batch_sampler is None else "batch_sampler"
    order.batches = getattr(loader, kind)
    clone.__dict__[kind] = order
    if loader.num_workers:
        order.numbered = True
        clone.__dict__["dataset"] = _Seeded(loader.dataset, rank, generators.within(loader.dataset))
        clone.__dict__["worker_init_fn"] = partial(_begin_worker, loader.worker_init_fn)
    return clone


def _begin_worker(then: Callable[[int], object] | None, worker: int) -> None:
    """Protect a worker from a SIGTERM to all processes: the current step may need its batches.

    It ends with its rank, or when the rank stops it. Only Linux says who sent a signal: elsewhere a worker is
    not protected, since then it could not be stopped.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def listen() -> None:
        assert hasattr(signal, "sigwaitinfo")
        while signal.sigwaitinfo({signal.SIGTERM}).si_pid != os.getppid():
            pass
        os._exit(0)

    if hasattr(signal, "sigwaitinfo"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=listen, name="notice", daemon=True).start()
    if then:
        then(worker)
