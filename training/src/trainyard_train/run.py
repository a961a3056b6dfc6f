"""`Run`: gives any training loop checkpoints, exact resume, metrics, and an exit on a preemption notice. A
wrong setting, or the failure of another rank, ends the process with an exit code that launchers know.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from trainyard_train.attempt import Attempt
from trainyard_train.checkpointing import generators
from trainyard_train.checkpointing.checkpoint import Checkpoint, Manifest
from trainyard_train.checkpointing.config import CheckpointConfig
from trainyard_train.checkpointing.objects import (
    Stateful,
    Tracked,
    TrackedModule,
    TrackedOptimizer,
)
from trainyard_train.checkpointing.snapshot import Snapshot
from trainyard_train.checkpointing.tracked import TrackedObjects
from trainyard_train.checkpointing.values import no_tensor, paths, unpack
from trainyard_train.config_base import ConfigError, RefusalError, is_older, require, validated
from trainyard_train.contract import EXIT_PEER_FAILED, EXIT_PREEMPTED
from trainyard_train.data.batches import Batches
from trainyard_train.elasticity.agent import exit_without_teardown, log_refusal
from trainyard_train.elasticity.agreement import Agreement
from trainyard_train.elasticity.config import TimeoutConfig
from trainyard_train.elasticity.preemption import listen
from trainyard_train.elasticity.rendezvous import own_round
from trainyard_train.launchers import process_group
from trainyard_train.observability.metrics import MetricsLog
from trainyard_train.observability.rank_log import log_line
from trainyard_train.parallelism import accelerators
from trainyard_train.parallelism.buckets import order_buckets
from trainyard_train.parallelism.mesh import Mesh, is_peer_failure
from trainyard_train.tensors import Late

if TYPE_CHECKING:
    from typing import Self  # from Python 3.11

Batch = TypeVar("Batch")
Value = TypeVar("Value")
TIMEOUTS: Final = TimeoutConfig(silence=30, collective=600, stall=300)
"""Timeouts longer than those of `trainyard_train.train`: the work of a loop between two steps is unknown."""
_OWN: Final = "run"
"""Name under which the position is saved."""
_IMPORTED_AGAIN: Final = (
    "Run: got a second one, in a worker that imports the program; allowed: in the main process; move the"
    ' program into a function, and call it under `if __name__ == "__main__":`'
)
_runs = count()


class PreemptedError(BaseException):
    """Ends the loops of a preempted run; no `except Exception` stops it, and `with run` takes it."""


class Run(Attempt):
    """A run, or one attempt of it, around a loop of yours.

    ```python
    run = Run("/shared/runs/7", every_steps=100)
    run.track(model=model, optimizer=optimizer, scheduler=scheduler)
    loader = run.batches(loader)
    with run:                             # loads the newest checkpoint
        for epoch in run.epochs(3):       # continues with the interrupted epoch
            for batch in loader:          # continues after the last saved batch
                ...
                run.step(loss)
    sys.exit(run.exit_code)               # 0, or 75: preempted, with a checkpoint committed
    ```
    All ranks call the same in the same order. Wrong settings, and objects that do not fit the checkpoint, end
    the process with exit code 2 and a line for each; a failed rank ends the others with 76.

    Args:
        run_dir: folder that all ranks share.
        ranks: a mesh or group of all ranks that you made; None: the existing process group, else the ranks
            that torchrun, mpirun or a Trainer started, else this process.
        every_steps: steps between two checkpoints; 0: the cheapest interval (`checkpointing.interval`).
        keep_last: number of the newest checkpoints that are retained.
        keep_every: steps between checkpoints that are never deleted; 0: none.
        keep_best: `metric`, `n` and `mode` (max or min) of the checkpoints that are kept for their metric, of
            which `measured` gets the values.
        store: URL of a folder in an object store, for the checkpoints; empty: in `run_dir`.
        memory_gib: limit of each node's memory in which its agent keeps the newest checkpoint for restarted
            ranks; None: depends on the available memory.
        skip_unreadable: whether to resume from an older checkpoint if the newest one cannot be read; None: as
            TRAINYARD_SKIP_UNREADABLE has it.
        from_scratch: whether to begin at step 0 if there are checkpoints and none can be used; None: as
            TRAINYARD_FROM_SCRATCH has it.
        notices: cloud whose metadata service is polled for preemption notices: none, aws, gcp, azure.
        timeouts: seconds to wait for others.
        identity: JSON that another start must have in common with this one, such as the name of the data.
    """

    state: TrackedObjects
    epoch: int = 0
    """Epoch that the run is in; those before it are finished."""
    loss: float | None = None
    """Mean over the ranks of the loss that `step` got one or two steps ago; None before that is known."""
    preempted: bool = False
    """Whether all ranks have agreed on the preemption and have saved."""
    exit_code: int = 1
    """Exit code for the process: 0 once the `with` block has ended normally, 75 if preempted."""
    own: Stateful | None = None
    """State that each rank has for itself, as JSON; another number of ranks starts without it."""
    _open: ClassVar[Run | None] = None
    """The run of this process, from its construction until it is closed."""
    _inside = _loaded = _in_epochs = False
    _found: tuple[Checkpoint | None, list[str]] | None = None
    _resumed_at: int | None = None
    """Number of finished steps when the run resumed."""
    _finished_at: int | None = None
    """Number of finished steps when the run was finished."""
    _private: Mapping[str, Any] | None = None
    """This rank's private state from the checkpoint."""
    _held: tuple[int, Late | float | None] | None = None
    """Last step and its loss, which is not sent to the other ranks yet."""
    _sent: int | None = None
    """Step whose loss is being summed."""

    def __init__(
        self,
        run_dir: str | Path,
        ranks: DeviceMesh | dist.ProcessGroup | Mesh | None = None,
        *,
        every_steps: int = 0,
        keep_last: int = 3,
        keep_every: int = 0,
        keep_best: Mapping[str, Any] | None = None,
        store: str = "",
        memory_gib: float | None = None,
        skip_unreadable: bool | None = None,
        from_scratch: bool | None = None,
        notices: str = "none",
        timeouts: TimeoutConfig = TIMEOUTS,
        identity: Mapping[str, Any] | None = None,
    ) -> None:
        """Join the ranks, and begin to listen to preemption notices; nothing is loaded.

        Raises:
            ConfigError: a setting, a version, or a launcher's variable is wrong, or the group lacks ranks.
            AbsentRankError: not all ranks joined in time.
        """
        _end_refusals_with_their_code()
        require("torch", torch.__version__, (2, 6))
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise ConfigError([_IMPORTED_AGAIN])
        if Run._open is not None:
            problem = (
                f"run_dir: got {run_dir}, but this process has a run in {Run._open.run_dir} already; allowed:"
                " one, by a callback or by Run; track all objects with it, or close() it before"
            )
            raise ConfigError([problem])
        settings = {
            "every_steps": every_steps,
            "keep_last": keep_last,
            "keep_every": keep_every,
            "keep_best": keep_best,
            "store": store,
            "memory_gib": memory_gib,
            "skip_unreadable": skip_unreadable,
            "from_scratch": from_scratch,
        }
        given = {name: value for name, value in settings.items() if value is not None}
        checkpoint = validated(CheckpointConfig, given)
        mesh = ranks if isinstance(ranks, Mesh) else _mesh_of(ranks, timeouts)
        run_dir, notice = Path(run_dir), listen(timeouts.until_exit(notices), notices)
        log = MetricsLog(run_dir) if mesh.is_rank0 else None
        super().__init__(run_dir, mesh, notice, checkpoint, timeouts, log)
        self.identity = dict(identity or {})
        self._agreement = Agreement(mesh.world_size, timeouts.collective)
        self.state = TrackedObjects(mesh, self._agreement.same, self.memory)
        self.state.add(_OWN, _Position(self))
        self._batches: list[Batches[Any]] = []
        self._carried: dict[str, Any] = {}
        self._resumed_with: dict[str, Any] = {}
        self._late: dict[str, Tracked] = {}
        self._since = time.monotonic()
        Run._open = self

    def track(self, **objects: object) -> Self:
        """Save and load these, by their names: modules, optimizers, tensors, dicts, lists, anything Stateful,
        or the attributes of an object of yours.

        After the load: an object that a function creates in each epoch, such as a meter. The first one of its
        name gets the state that the resumed run had; each replaces the one before it.

        Returns:
            this run.

        Raises:
            ConfigError: a name is taken, an object cannot be saved, or it is a module or an optimizer and the
                run was loaded already.
        """
        for name, value in objects.items():
            if self._loaded:
                self._track_late(name, value)
            else:
                self.state.add(name, value)
        if self._loaded:
            self.state.check()
        return self

    def _track_late(self, name: str, value: object) -> None:
        late = self.state.wrap(name, value)
        if isinstance(value, Batches) or isinstance(late, TrackedModule | TrackedOptimizer):
            raise ConfigError([f"{name}: is tracked after the run was loaded; call track() before that"])
        if name in self._resumed_with:
            late.write({"": self._resumed_with.pop(name)})
        self._late[name] = late

    def batches(self, loader: Iterable[Batch], *, per_step: int | None = 1, ahead: int = 0) -> Batches[Batch]:
        """Wrap a loader, to iterate instead of it; the wrapper continues after the finished steps.

        Args:
            loader: iterable of this rank's batches, such as a DataLoader.
            per_step: batches that a step accumulates; None if that varies.
            ahead: batches that your loop takes from the loader before it works on them.

        Raises:
            ConfigError: the run was loaded already.
        """
        name = "batches" if not self._batches else f"batches-{len(self._batches) + 1}"
        found = Batches(
            name, loader, self.mesh, per_step, ahead, lambda: self.epoch if self._in_epochs else None
        )
        self.track(**{name: found})
        self._batches.append(found)
        return found

    def epochs(self, number: int | None) -> Iterator[int]:
        """The remaining epochs of so many, beginning with the one that the run is in; None: no end.

        Loads the newest checkpoint if nothing did before. After the last epoch, outside of `with run`, it
        calls `finish`.
        """
        if not self._loaded:
            self.load()
        if self._resumed_at == self.steps and not self._batches and self.epoch != number:
            log_line(
                f"epoch {self.epoch} restarts from its first batch, although steps of it may be finished:"
                " wrap its loader by run.batches(), or loop over steps instead of epochs, from run.steps on"
            )
        self._in_epochs = True
        try:
            while (number is None or self.epoch < number) and not self.preempted:
                yield self.epoch
                self.epoch += 1
        finally:
            self._in_epochs = False
        if not self._inside:
            self.finish()

    def in_epoch(self, number: int) -> None:
        """Note the epoch of a loop that counts its epochs by itself."""
        self.epoch, self._in_epochs = number, True

    def step(self, loss: torch.Tensor | float | None = None, **carried: Any) -> bool:  # noqa: ANN401
        """Finish a step: count it, save if that is due, exit if any rank has a preemption notice.

        Nothing waits for the loss: the metrics get it, as the mean over the ranks, one step later.

        Args:
            loss: of this rank.
            carried: variables that the next step needs; after a resume `restored()` returns them.

        Returns:
            whether to continue. Inside of `with run` the loops end by themselves.

        Raises:
            ConfigError: the run was not loaded, batches do not fit the steps, or a variable cannot be saved.
            SaveError: on a preemption notice, if the step could not be saved.
            RuntimeError: a rank has failed.
        """
        if not self._loaded:
            raise ConfigError(["step(): the run was not loaded; use `with run:`, or call run.load() first"])
        if self._held is None:
            _require_exact_pipeline_stages()
        self.steps += 1
        before, self._carried = self._carried, carried
        if carried.keys() - before.keys():
            self.state.check()
        for batches in self._batches:
            batches.finish_step()
        now = time.monotonic()
        self._measure(now - self._since)
        self._since = now
        self._exchange()
        self._held = (self.steps, _mean_of(loss))
        self.writer.look()
        if self._noticed:
            self._save_on_notice()
        elif self._save_is_due:
            self._begin_save()
        if self.preempted and self._inside:
            raise PreemptedError
        return not self.preempted

    def restored(self, name: str, default: Value) -> Value:
        """A variable as the last step before the resume had it, once; `default` if there is none.

        So a sum over an epoch goes on in the epoch that the run resumed in, and begins anew in the next:
        `total = run.restored("total", 0.0)` before the loop over batches, `run.step(loss, total=total)` in
        it. Loads the newest checkpoint if nothing did before.
        """
        if not self._loaded:
            self.load()
        found: Value = self._resumed_with.pop(name, default)
        return found

    def evaluation(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        """The batches of an evaluation between two steps, which may outlast a preemption notice.

        All ranks must take as many. After each they agree on a preemption notice; then the last step is
        saved, the evaluation ends, and another start does not make up for it. Outside of `with run` look at
        `preempted`.

        Raises:
            SaveError: on a preemption notice, if the last step could not be saved.
            RuntimeError: a rank has failed.
        """
        for batch in loader:
            yield batch
            self._exchange()
            if self._noticed:
                self._save_on_notice()
                if self._inside:
                    raise PreemptedError
                return

    def measured(self, **values: float) -> None:
        """Note results of an evaluation of the finished steps; with `keep_best`, save and keep the best.

        All ranks must call it; rank 0's values count.
        """
        self._record("measured", **values)
        self._keep_if_best(values)

    def load(self) -> bool:
        """Continue from the newest checkpoint; `with run` does it.

        Returns:
            whether there was one.

        Raises:
            MismatchError: the checkpoint is of another run, or the tracked objects do not fit.
            ConfigError: these ranks cannot continue with it, or have different settings.
            FormatError: another version wrote it.
        """
        _require_exact_pipeline_stages()  # before the first schedule, which hangs on CPUs with PyTorch 2.6
        for batches in self._batches:
            batches.begin_run()
        self._find(whole=False)
        self._agree("tracked", {"tracked": [*self.state.objects]})
        self._loaded = True
        self.state.check()
        with self.heartbeats.busy("loading"):
            checkpoint, damages, self._private = self.finder.load(
                self.identity, self.state.restore, self._found
            )
            self._found = checkpoint, damages
            self.restore_generators()
            if self.own is not None and self._private is not None and "own" in self._private:
                self.own.load_state_dict(self._private["own"])
            if self.mesh.world_size > 2:
                order_buckets(list(self.state.parameter_names()))
            self._begin(checkpoint, damages)
        self._resumed_at = self.steps if checkpoint else None
        self.notice.begin_steps()
        self._since = time.monotonic()
        return checkpoint is not None

    def find(self) -> Mapping[str, Any]:
        """Look for the newest checkpoint, and verify it, before anything is tracked.

        From then on `steps` and `epoch` are the checkpoint's. `load` uses what is found here; without it,
        `load` verifies what it reads.

        Returns:
            what it has without tensors, by the name under which it was tracked; empty if there is none.

        Raises:
            MismatchError: the checkpoint is of another run.
            ConfigError: the ranks have different settings.
        """
        checkpoint, _ = self._find(whole=True)
        values = checkpoint.manifest.state.get("values", {}) if checkpoint else {}
        found = {name: unpack(value, no_tensor) for name, value in values.items() if not paths(value)}
        if _OWN in found:
            _Position(self).write({"": found[_OWN]})
        return found

    def _find(self, whole: bool) -> tuple[Checkpoint | None, list[str]]:
        """The newest checkpoint; `whole`: verified, since the caller acts on it before it is loaded."""
        if self._found is None:
            self._agree("settings", {**self._checkpoint.model_dump(), "identity": self.identity})
            self.heartbeats.start()
            with self.heartbeats.busy("loading"):
                self._found = self.finder.newest(self.identity, whole=whole)
        return self._found

    def restore_generators(self) -> None:
        """Restore this rank's random generators; one that is not in the checkpoint is not changed."""
        if self._private is not None:
            for batches, state in zip(self._batches, self._private["batches"], strict=True):
                batches.load_private(state, self._private["generators"])
            generators.restore(self._private["generators"], self.mesh.device)

    def save(self) -> None:
        """Save what is finished, and wait until it is committed; all ranks must call it.

        Raises:
            SaveError: the checkpoint could not be saved; the former one remains.
            ConfigError: something in it cannot be saved.
        """
        self._save("asked")

    def exit(self) -> NoReturn:
        """End the process with `exit_code`: `run.step(loss) or run.exit()`."""
        sys.exit(self.exit_code)

    def close(self) -> None:
        """Close threads and files, and restore the former signal handlers; `with run` does it."""
        if Run._open is self:
            Run._open = None
        super().close()
        for batches in self._batches:
            batches.close()
        if threading.current_thread() is threading.main_thread():
            self.notice.stop()

    def __enter__(self) -> Self:
        try:
            self.load()
        except RefusalError as error:
            self.mesh.refuse()
            self.close()
            self.exit_code = log_refusal(error)
            raise SystemExit(self.exit_code) from None
        except BaseException as error:
            self._exit_if_peer_failed(error)
            self.close()
            raise
        self._inside = True
        return self

    @contextmanager
    def entered(self) -> Iterator[Self]:
        """Run a block as `with run` does, for a loop that calls `load` by itself."""
        self._inside = True
        try:
            yield self
        except BaseException as error:
            if not self.__exit__(type(error), error, error.__traceback__):
                raise
        else:
            self.__exit__(None, None, None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._inside = False
        try:
            if error is None:
                self.finish()
            elif isinstance(error, RefusalError):
                self._record("failed", error=str(error))
                self.exit_code = log_refusal(error)
            elif not isinstance(error, PreemptedError):
                self._record("failed", error=f"{type(error).__name__}: {error}")
                self._exit_if_peer_failed(error)
        except Exception as wrong:
            self._exit_if_peer_failed(wrong)
            raise
        finally:
            self.close()
        return isinstance(error, PreemptedError | RefusalError)

    def finish(self) -> None:
        """Save the last step, when all is done; the ends of `with run` and of `epochs` do it.

        Nothing is left to do if the run was preempted, or for a second call.

        Raises:
            SaveError: the last step could not be saved.
        """
        if self.preempted or self._finished_at == self.steps:
            return
        self._save("final")
        self._finished_at = self.steps
        self._record("finished")
        self.mesh.shutdown_barrier()
        self.exit_code = 0
        self._wait_for_clean_up()

    def _save_on_notice(self) -> None:
        super()._save_on_notice()
        self._record("preempted")
        self.preempted, self.exit_code = True, EXIT_PREEMPTED
        self.mesh.shutdown_barrier()

    def _exchange(self) -> None:
        """Exchange flags with the other ranks, and handle those of the step before."""
        step, loss = self._held or (None, None)
        self._held = None
        value = loss.read() if isinstance(loss, Late) else loss
        flags = [*map(float, self._flags()), value or 0.0, float(value is not None)]
        self._take(self._agreement.exchange(flags))
        self._sent = step

    def _take(self, totals: list[float] | None) -> None:
        if totals is None:
            return
        notices, due, total, number = totals
        self._noticed, self._due = self._noticed or notices > 0, due > 0
        if number:
            self.loss = total / number
        if self._sent is not None:
            self._record("step", step=self._sent, **({"loss": self.loss} if number else {}))
            self._sent = None

    def _catch_up(self) -> None:
        if self._held:
            self._exchange()
        self._take(self._agreement.result())

    def _capture(self, manifest: Manifest) -> Snapshot:
        private = {
            "generators": generators.capture(self.mesh.device),
            "batches": [each.private() for each in self._batches],
            **({} if self.own is None else {"own": self.own.state_dict()}),
        }
        return self.state.capture(manifest, private)

    def _position(self) -> dict[str, Any]:
        return {"samples": 0, "schedule": {}}  # `_Position` has more, among what is tracked

    def _exit_if_peer_failed(self, error: BaseException) -> None:
        """End at once where another rank has failed: to take the group down in order would wait for it."""
        if is_peer_failure(error):
            text = str(error).partition("\n")[0]
            log_line(f"another rank has failed: {text}; the next start resumes from a committed checkpoint")
            exit_without_teardown(EXIT_PEER_FAILED)


@dataclass
class _Position(Tracked):
    """The run's own state in a checkpoint: its position, and the variables that its loop carries."""

    run: Run
    kind = "state"

    def read(self) -> dict[str, Any]:
        late = {name: each.read()[""] for name, each in self.run._late.items()}
        carried = {**self.run._carried, **late}
        position = {"steps": self.run.steps, "epoch": self.run.epoch}
        return {"": position, **({"variables": carried} if carried else {})}

    def write(self, values: Mapping[str, Any]) -> None:
        self.run.steps, self.run.epoch = values[""]["steps"], values[""]["epoch"]
        self.run._carried = values.get("variables", {})
        self.run._resumed_with = dict(self.run._carried)


def _mean_of(loss: torch.Tensor | float | None) -> Late | float | None:
    """Read a loss one step later, when the GPU has computed it."""
    if not isinstance(loss, torch.Tensor):
        return None if loss is None else float(loss)
    whole = loss.detach()
    return Late((whole.full_tensor() if hasattr(whole, "full_tensor") else whole).double().mean())


def _require_exact_pipeline_stages() -> None:
    """Refuse stages of a PyTorch whose first step of each start draws random numbers to find their shapes."""
    stages = sys.modules.get("torch.distributed.pipelining.stage")
    if stages is None or not is_older(torch.__version__, (2, 12)):
        return
    if any(issubclass(type(each), stages._PipelineStageBase) for each in gc.get_objects()):
        require("torch", torch.__version__, (2, 12), use=" with pipeline stages")


def _end_refusals_with_their_code() -> None:
    """End the process on an uncaught ConfigError as elsewhere: its lines, exit code 2."""
    before = sys.excepthook
    if getattr(before, "func", None) is not _refuse_or:
        sys.excepthook = partial(_refuse_or, before)


def _refuse_or(
    otherwise: Callable[..., object],
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
) -> None:
    if isinstance(error, RefusalError):
        raise SystemExit(log_refusal(error))
    otherwise(kind, error, trace)


def _mesh_of(ranks: DeviceMesh | dist.ProcessGroup | None, timeouts: TimeoutConfig) -> Mesh:
    """The ranks of the default group, whose store they share; without one, those of the launcher."""
    if not dist.is_initialized():
        if ranks is not None:
            raise ConfigError(["Run(ranks=…): there is no process group; leave `ranks` out"])
        process_group.adopt_launcher_settings(os.environ)
        return process_group.join(timeouts)
    accelerators.check(os.environ)
    world_size = dist.get_world_size()
    size = world_size if ranks is None else ranks.size()
    if size != world_size:
        raise ConfigError([f"Run(ranks=…): got {size} of {world_size} ranks; allowed: all of them"])
    device = torch.device("cpu")
    if torch.cuda.is_available() and getattr(ranks, "device_type", "cuda") == "cuda":
        device = torch.device("cuda", torch.cuda.current_device())
    store: dist.Store = dist.PrefixStore(
        f"trainyard/{next(_runs)}", dist.distributed_c10d._get_default_store()
    )
    store.set_timeout(timedelta(seconds=max(timeouts.rendezvous, timeouts.save)))
    if world_size > 1:
        store = own_round(store, dist.get_rank(), world_size, timeouts.rendezvous)
    node = os.environ.get("NODE_NAME") or socket.gethostname()
    return Mesh(dist.get_rank(), world_size, device, node, store)
