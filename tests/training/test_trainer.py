"""The trainer, in one process: whatever interrupts a run, it ends with the same weights, bit for bit."""

import errno
import math
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from tests.processes import wait_for
from tests.training.launch import events, sha256
from trainyard_train.checkpointing.folder_store import Files, FolderStore
from trainyard_train.checkpointing.interval import measured_mtbf
from trainyard_train.checkpointing.saver import SaveError
from trainyard_train.checkpointing.state import decode
from trainyard_train.config import TrainConfig, parse_config
from trainyard_train.config_base import ConfigError
from trainyard_train.contract import FILE, read_metrics, surviving_steps
from trainyard_train.elasticity.heartbeats import Heartbeats
from trainyard_train.elasticity.preemption import PreemptionNotice
from trainyard_train.launchers import process_group
from trainyard_train.observability.goodput import goodput
from trainyard_train.parallelism import mesh
from trainyard_train.tensors import Late
from trainyard_train.trainer import DivergedError, Trainer

STEPS = 24


class NoticeAt(PreemptionNotice):
    """A preemption notice that comes during a given step."""

    def __init__(self, step: int) -> None:
        super().__init__(exit_seconds=60)
        self._left = step

    def sleep(self, seconds: float) -> None:
        self._left -= 1
        if self._left == 0:
            self.request()


def configure(run_dir: Path, **values: object) -> TrainConfig:
    return parse_config(
        {
            "run_dir": run_dir,
            "steps": STEPS,
            "seed": 7,
            "model": {"name": "mlp", "hidden": 16, "dropout": 0.3},
            "data": {"batch_size_per_rank": 100},
            "checkpoint": {"every_steps": 5},
            "evaluate_every": 10,
            **values,
        }
    )


def train(
    config: TrainConfig, notice: PreemptionNotice | None = None, *, reads_late: bool | None = None
) -> bool:
    mesh = process_group.join(config.timeouts, {})
    trainer = Trainer(config, mesh, notice or PreemptionNotice(60), reads_late=reads_late)
    try:
        return trainer.run(0)
    finally:
        trainer.saver.wait_for_clean_up(60)  # else it would run during the next attempt in this process


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    run_dir = tmp_path_factory.mktemp("undisturbed")
    assert train(configure(run_dir))
    return sha256(run_dir)


def test_a_run_learns(tmp_path: Path) -> None:
    train(configure(tmp_path, steps=150, data={"batch_size_per_rank": 32}))
    evaluations = [line["accuracy"] for line in events(tmp_path, "evaluation")]
    assert len(evaluations) == 15
    assert evaluations[-1] > 0.85


def test_the_digest_differs_by_run(tmp_path: Path, undisturbed: str) -> None:
    train(configure(tmp_path, seed=8))
    assert sha256(tmp_path) != undisturbed


@pytest.mark.parametrize("step", range(1, STEPS - 1))
def test_a_preemption_at_any_step_changes_no_bit(tmp_path: Path, undisturbed: str, step: int) -> None:
    assert not train(configure(tmp_path), NoticeAt(step))
    saved = events(tmp_path, "preempted")[0]["step"]
    evaluated = step % 10 == 0
    assert saved == step + (
        not evaluated
    )  # the notice comes during a step; all ranks agree on it at the next one
    assert train(configure(tmp_path))
    assert sha256(tmp_path) == undisturbed
    steps = [line["step"] for line in events(tmp_path, "step")]
    assert steps == list(range(1, STEPS + 1)), "nothing was repeated"


@pytest.mark.parametrize(("batch", "evaluated"), [(0, 0), (1, 1), (3, 3)])
def test_a_preemption_notice_ends_an_evaluation_after_the_batch_in_which_it_comes(
    tmp_path: Path, undisturbed: str, monkeypatch: pytest.MonkeyPatch, batch: int, evaluated: int
) -> None:
    """With batch 0, the notice comes in the step before, and no batch is evaluated."""
    notice = PreemptionNotice(60) if batch else NoticeAt(9)
    taken = 0

    def look(trainer: Trainer, part: torch.Tensor) -> torch.Tensor:
        nonlocal taken
        taken += 1
        if taken == batch:
            notice.request()
        return look_at(trainer, part)

    look_at = Trainer._look_at
    monkeypatch.setattr(Trainer, "_look_at", look)
    monkeypatch.setattr("trainyard_train.trainer.EVALUATED_AT_ONCE", 50)
    assert not train(configure(tmp_path), notice)
    assert taken == evaluated
    assert [line["step"] for line in events(tmp_path, "preempted")] == [10]
    assert events(tmp_path, "evaluation") == []
    monkeypatch.undo()
    assert train(configure(tmp_path))
    assert sha256(tmp_path) == undisturbed


def test_a_preemption_notice_in_the_last_evaluation_costs_only_that_evaluation(
    tmp_path: Path, undisturbed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    notice = PreemptionNotice(60)

    def look(*_: object) -> torch.Tensor:
        notice.request()
        return torch.zeros(3)

    monkeypatch.setattr(Trainer, "_look_at", look)
    assert train(configure(tmp_path, evaluate_every=1000), notice)
    assert sha256(tmp_path) == undisturbed


@settings(max_examples=8)
@given(notices=st.lists(st.integers(1, 12), max_size=6))
def test_any_number_of_preemptions_changes_no_bit(
    tmp_path_factory: pytest.TempPathFactory, undisturbed: str, notices: list[int]
) -> None:
    run_dir = tmp_path_factory.mktemp("run")
    for step in notices:
        train(configure(run_dir), NoticeAt(step))
    assert train(configure(run_dir))
    assert sha256(run_dir) == undisturbed


@pytest.mark.parametrize("name", ["sgd", "adamw"])
@pytest.mark.parametrize("model", ["mlp", "convnet"])
def test_every_model_and_optimizer_resumes_to_the_bit(tmp_path: Path, name: str, model: str) -> None:
    values: dict[str, object] = {
        "steps": 8,
        "model": {"name": model, "hidden": 4},
        "optim": {"name": name, "lr": 0.01, "scaling": "sqrt", "warmup_steps": 6},
    }
    train(configure(tmp_path / "whole", **values))
    train(configure(tmp_path / "parted", **values), NoticeAt(3))
    train(configure(tmp_path / "parted", **values))
    assert sha256(tmp_path / "parted") == sha256(tmp_path / "whole")


def test_a_kill_costs_the_steps_since_the_last_save_and_no_bit(tmp_path: Path, undisturbed: str) -> None:
    class KilledError(Exception):
        pass

    class Killed(NoticeAt):
        def request(self) -> None:
            wait_for((tmp_path / "checkpoints" / "step-00000010").exists)
            raise KilledError

    with pytest.raises(KilledError):
        train(configure(tmp_path), Killed(13))
    assert train(configure(tmp_path))
    assert sha256(tmp_path) == undisturbed
    assert events(tmp_path, "resumed")[0]["step"] == 10
    assert len(surviving_steps(read_metrics(tmp_path / FILE))) == STEPS


def test_the_last_step_is_saved_so_a_finished_run_runs_again_to_no_effect(tmp_path: Path) -> None:
    train(configure(tmp_path))
    before = sha256(tmp_path)
    assert train(configure(tmp_path))
    assert sha256(tmp_path) == before
    assert {line["attempt"] for line in events(tmp_path, "step")} == {1}


@pytest.mark.parametrize("seen", ["before a load", "in the midst of it"])
def test_damaged_checkpoints_are_named_and_cost_no_bit(tmp_path: Path, undisturbed: str, seen: str) -> None:
    train(configure(tmp_path), NoticeAt(17))
    for step in (18, 15):
        model = tmp_path / "checkpoints" / f"step-{step:08d}" / "rank-00000.safetensors"
        content = model.read_bytes()
        model.write_bytes(content[:-1] + (bytes([content[-1] ^ 1]) if seen == "in the midst of it" else b""))
    train(configure(tmp_path))
    resumed = events(tmp_path, "resumed")[0]
    assert resumed["step"] == 10
    assert len(resumed["damaged"]) == 2
    assert sha256(tmp_path) == undisturbed


def test_a_loss_that_is_not_a_number_stops_the_run_before_the_weights_are_corrupted(tmp_path: Path) -> None:
    config = configure(tmp_path, optim={"lr": 1e30}, checkpoint={"every_steps": 1})
    with pytest.raises(DivergedError, match=r"lower optim\.lr") as caught:
        train(config)
    assert "step" in str(caught.value)
    saved = list((tmp_path / "checkpoints").glob("step-*/rank-00000.safetensors"))
    assert saved
    for path in saved:
        assert all(values.isfinite().all() for _, values in decode(path.read_bytes()).values())


@pytest.mark.parametrize(
    ("optim", "advice"),
    [
        ({}, r"lower optim\.lr \(1e\+30\), or start a new run with more optim\.warmup_steps \(0\)$"),
        ({"scaling": "linear"}, r"lower optim\.lr \(1e\+30\), or start a new run"),  # 100 samples, for 64
        ({"scaling": "linear", "reference_batch_size": 100}, r"lower optim\.lr \(1e\+30\)$"),
        ({"scaling": "linear", "reference_batch_size": 200}, r"lower optim\.lr \(1e\+30\)$"),
    ],
)
def test_a_longer_warmup_is_advised_only_where_it_would_change_the_rate(
    tmp_path: Path, optim: dict[str, object], advice: str
) -> None:
    with pytest.raises(DivergedError, match=advice):
        train(configure(tmp_path, optim={"lr": 1e30, **optim}))


def test_where_a_scaling_rule_is_unreliable_a_run_warns_at_each_start(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = configure(tmp_path, optim={"scaling": "linear", "lr": 1e-4, "reference_batch_size": 5})
    train(config, NoticeAt(3))
    train(config)
    (begun,), (resumed,) = events(tmp_path, "started"), events(tmp_path, "resumed")
    (warning,) = begun["warnings"]
    assert warning.startswith("optim.scaling: linear, at 20 times optim.reference_batch_size: ")
    assert resumed["warnings"] == [warning]
    assert capfd.readouterr().err.count(f"training: {warning}\n") == 2


def test_an_evaluation_whose_loss_is_not_a_number_is_reported_without_a_later_step(tmp_path: Path) -> None:
    config = configure(tmp_path)
    trainer = Trainer(config, process_group.join(config.timeouts, {}), PreemptionNotice(60))
    trainer.model.register_forward_hook(
        lambda model, _, outputs: outputs if model.training else outputs * math.nan
    )
    with pytest.raises(DivergedError, match="the loss on held-out data after step 10 is nan"):
        trainer.run(0)


def test_corrupted_weights_are_not_saved_although_the_loss_is_sane(tmp_path: Path, undisturbed: str) -> None:
    config = configure(tmp_path, checkpoint={"every_steps": 1})
    trainer = Trainer(config, process_group.join(config.timeouts, {}), PreemptionNotice(60))
    weight = next(trainer.model.parameters())

    def spoil(*_: object) -> None:
        if trainer.steps == 11:
            weight.data.fill_(math.nan)

    trainer.optimizer.register_step_post_hook(spoil)
    with pytest.raises(DivergedError, match="the loss of step 13 is nan"):
        trainer.run(0)
    (failed,) = events(tmp_path, "checkpoint_failed")
    assert failed["step"] == 12
    assert re.search(r"rank 0 on .*: model\..* has NaN or infinite values: lower optim\.lr", failed["error"])
    assert trainer.saved_step == 11
    assert train(configure(tmp_path))
    assert events(tmp_path, "resumed")[0]["step"] == 11
    assert sha256(tmp_path) == undisturbed


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_gradient_that_is_no_number_ends_the_run_alone(tmp_path: Path, optimizer: str, late: bool) -> None:
    config = configure(tmp_path, optim={"name": optimizer, "lr": 0.01}, checkpoint={"every_steps": 1000})
    trainer = Trainer(config, process_group.join(config.timeouts, {}), PreemptionNotice(60), reads_late=late)
    weight = next(trainer.model.parameters())
    weight.register_hook(lambda gradient: gradient * math.inf if trainer.steps == 11 else gradient)
    weights = []
    trainer.optimizer.register_step_post_hook(lambda *_: weights.append(trainer.state.weights_sha256()))
    with pytest.raises(DivergedError, match=r"the norm of the gradient of step 12 is (nan|inf): lower"):
        trainer.run(0)
    assert len(weights) == 12, "found before another step of the optimizer"
    assert weights[11] == weights[10] != weights[9]


class NoDeviceReads(TorchDispatchMode):
    """Fails on operations that make the host wait for the device."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        assert func not in WAITS, f"{func} waits for the device"
        return func(*args, **(kwargs or {}))


WAITS = {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default}


@pytest.mark.parametrize(
    "values", [{}, {"precision": "float16"}, {"optim": {"name": "adamw", "clip_norm": 0.1}}]
)
def test_up_to_the_optimizer_the_host_waits_for_no_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: dict[str, object]
) -> None:
    """Runs on a CPU, where the calls are the same that would wait for a GPU; not run on a GPU."""
    config = configure(tmp_path, **values)
    trainer = Trainer(config, process_group.join(config.timeouts, {}), PreemptionNotice(60), reads_late=True)
    trainer.prepare(0)
    reads: list[str] = []
    read = Late.read

    def watched(late: Late) -> Any:
        reads.append("read")
        return read(late)

    monkeypatch.setattr(Late, "read", watched)
    trainer.optimizer.register_step_pre_hook(lambda *_: reads.append("optimizer"))
    with NoDeviceReads():  # type: ignore[no-untyped-call]
        for _ in range(4):
            trainer.take_step()
    assert reads == ["optimizer"] + 3 * ["read", "optimizer"], "a loss is read when the next one is queued"
    trainer.close()


@pytest.mark.parametrize("step", [1, 4, 8, 9, 10, 13, 21])
def test_losses_that_are_read_later_change_nothing(tmp_path: Path, undisturbed: str, step: int) -> None:
    assert not train(configure(tmp_path), NoticeAt(step), reads_late=True)
    saved = events(tmp_path, "preempted")[0]["step"]
    known_at_once = step % 10 == 0
    read_early = step % 10 == 9 or step % 5 == 4  # an evaluation or a save needs the loss
    assert saved == step + (0 if known_at_once else 1 if read_early else 2)
    assert [line["step"] for line in events(tmp_path, "step")] == list(range(1, saved + 1))
    assert train(configure(tmp_path), reads_late=True)
    assert sha256(tmp_path) == undisturbed
    assert [line["step"] for line in events(tmp_path, "step")] == list(range(1, STEPS + 1))


def test_a_loss_that_is_not_a_number_is_found_a_step_later_and_no_weight_is_corrupted(tmp_path: Path) -> None:
    config = configure(tmp_path, optim={"lr": 1e30}, checkpoint={"every_steps": 1000})
    trainer = Trainer(config, process_group.join(config.timeouts, {}), PreemptionNotice(60), reads_late=True)
    with pytest.raises(DivergedError, match=r"of step \d is .*lower optim\.lr"):
        trainer.run(0)
    assert all(weight.isfinite().all() for weight in trainer.model.parameters())


def test_an_evaluation_takes_no_more_samples_at_once_than_a_micro_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    look_at = Trainer._look_at

    def look(trainer: Trainer, part: torch.Tensor) -> torch.Tensor:
        sizes.append(len(part))
        return look_at(trainer, part)

    monkeypatch.setattr(Trainer, "_look_at", look)
    train(configure(tmp_path / "parts", steps=1, accumulate=4))
    assert max(sizes) <= 25
    assert sum(sizes) == 359
    train(configure(tmp_path / "whole", steps=1, data={"batch_size_per_rank": 400}))
    assert sizes[-1] == 359


def test_an_infinity_in_a_buffer_is_saved(tmp_path: Path) -> None:
    config = configure(tmp_path, steps=2)
    trainer = Trainer(config, process_group.join(config.timeouts, {}), PreemptionNotice(60))
    trainer.state.model.register_buffer("mask", torch.full((2, 2), -math.inf))
    assert trainer.run(0)
    assert trainer.saved_step == 2


def test_a_clock_that_jumps_during_training_changes_no_bit_and_no_metric(
    tmp_path: Path, undisturbed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Moving(PreemptionNotice):
        """The clock is moved in the pause after the first step."""

        def sleep(self, seconds: float) -> None:
            monkeypatch.setattr(time, "time", lambda: real() + 1e6)

    real = time.time
    train(configure(tmp_path), Moving(60))
    assert sha256(tmp_path) == undisturbed
    lines = read_metrics(tmp_path / FILE)
    assert [line["event"] for line in lines].count("clock") == 1
    assert goodput(lines).total - goodput(lines).startup < 1000
    assert measured_mtbf(lines, 100) < 1100


@pytest.mark.parametrize(
    ("bounds", "allowed"), [({"min_ranks": 2}, "2 or more"), ({"min_ranks": 2, "max_ranks": 4}, "2 to 4")]
)
def test_too_few_ranks_lose_no_checkpoints(tmp_path: Path, bounds: dict[str, int], allowed: str) -> None:
    train(configure(tmp_path), NoticeAt(3))
    before = read_metrics(tmp_path / FILE)
    with pytest.raises(ConfigError, match=f"parallel: got 1 ranks; allowed: {allowed}; start so many"):
        train(configure(tmp_path, parallel=bounds))
    assert read_metrics(tmp_path / FILE) == before
    assert (tmp_path / "checkpoints" / "step-00000004" / "manifest.json").exists()


def test_too_many_ranks_are_refused_too_and_bounds_must_be_in_order() -> None:
    parallel = configure(Path("/x"), parallel={"max_ranks": 4}).parallel
    parallel.check(4)
    with pytest.raises(ConfigError, match="got 5 ranks; allowed: 1 to 4"):
        parallel.check(5)
    with pytest.raises(ConfigError, match=r"max_ranks: got 2; allowed: parallel\.min_ranks .3. or more"):
        configure(Path("/x"), parallel={"min_ranks": 3, "max_ranks": 2})


def test_a_run_dir_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("in the way")
    with pytest.raises(
        OSError, match=r"run_dir: got .*/run: (Not a directory|File exists); allowed: a folder"
    ):
        train(configure(tmp_path / "run"))


def test_ranks_with_different_settings_are_named_on_all_ranks_except_for_settings_of_a_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Heartbeats, "start", lambda heartbeats: None)  # heartbeats would end this process
    shared = dist.HashStore()

    def attempt(rank: int, **values: object) -> str:
        config = configure(tmp_path, **values)
        two_ranks = mesh.Mesh(rank, 2, torch.device("cpu"), f"node-{rank}", shared)
        with pytest.raises(ConfigError) as caught:
            Trainer(config, two_ranks, PreemptionNotice(60))
        return str(caught.value)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(attempt, 0, threads=2)
        other = pool.submit(attempt, 1, optim={"lr": 0.5}, steps=9)
        assert first.result() == other.result()
    assert "optim: rank 1 on node-1 has {'name': 'sgd', 'lr': 0.5" in first.result()
    assert "steps: rank 1 on node-1 has 9, rank 0 has 24; give all ranks the same" in first.result()
    assert "threads" not in first.result()


def fill_disk(patch: pytest.MonkeyPatch, for_step: str) -> None:
    """Make writes fail for the checkpoints whose path has this text."""
    write = Files.write

    def maybe(files: Files, path: Path, data: bytes, finish: Callable[[], object] = lambda: None) -> None:
        if re.search(for_step, path.parent.name):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(files, path, data, finish)

    patch.setattr(Files, "write", maybe)


def test_a_temporarily_full_disk_costs_a_checkpoint_and_not_the_run(
    tmp_path: Path, undisturbed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_disk(monkeypatch, for_step="step-000000(05|10)")
    assert train(configure(tmp_path))
    failed = events(tmp_path, "checkpoint_failed")
    assert [line["step"] for line in failed] == [5, 10]
    assert "No space left" in failed[0]["error"]
    assert sha256(tmp_path) == undisturbed


def test_a_preemption_notice_on_a_full_disk_is_a_failure_and_checkpoints_are_retained(
    tmp_path: Path, undisturbed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_disk(monkeypatch, for_step="step-00000008")
    with pytest.raises(SaveError, match="step 8 could not be saved"):
        train(configure(tmp_path), NoticeAt(7))
    monkeypatch.undo()
    train(configure(tmp_path))
    resumed = events(tmp_path, "resumed")[0]
    assert resumed["step"] == 5
    assert sha256(tmp_path) == undisturbed


def test_a_disk_that_hangs_ends_the_run_with_a_message_and_it_can_resume(
    tmp_path: Path, undisturbed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    awake = threading.Event()
    write = Files.write

    def hang(files: Files, path: Path, data: bytes, finish: Callable[[], object] = lambda: None) -> None:
        if "step-00000010" in str(path):
            awake.wait()
        write(files, path, data, finish)

    assert not train(configure(tmp_path), NoticeAt(4))
    monkeypatch.setattr(Files, "write", hang)
    try:
        with pytest.raises(
            SaveError, match=r"step 10 is not durable after 0\.5 s: the disk or the store hangs"
        ):
            train(configure(tmp_path, timeouts={"save": 0.5}))
        monkeypatch.undo()
        train(configure(tmp_path))
    finally:
        awake.set()
    assert [line["step"] for line in events(tmp_path, "resumed")] == [5, 5]
    assert sha256(tmp_path) == undisturbed


@pytest.fixture
def held_clean_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Delay clean-ups until this event."""
    clean_up, released = FolderStore.clean_up, threading.Event()

    def late(store: FolderStore, order: Sequence[int]) -> None:
        released.wait()
        clean_up(store, order)

    monkeypatch.setattr(FolderStore, "clean_up", late)
    yield released
    released.set()


def started(config: TrainConfig, notice: PreemptionNotice, at_end: Callable[[], object]) -> Trainer:
    """Make a trainer that calls `at_end` when it reports its last step."""

    def report(line: dict[str, Any]) -> None:
        if line["event"] == "finished":
            at_end()

    return Trainer(config, process_group.join(config.timeouts, {}), notice, [report])


def test_a_clean_up_that_outlasts_the_timeout_of_saves_fails_no_save_and_ends_with_the_run(
    tmp_path: Path, undisturbed: str, held_clean_up: threading.Event
) -> None:
    config = configure(tmp_path, timeouts={"save": 60}, checkpoint={"every_steps": 1, "keep_last": 2})
    assert started(config, PreemptionNotice(60), held_clean_up.set).run(0)
    assert sha256(tmp_path) == undisturbed
    assert len(events(tmp_path, "checkpoint")) == STEPS
    folder = tmp_path / "checkpoints"
    left = {path.name for path in folder.iterdir()} - {"lock", "owner"}
    assert left == {"latest", "step-00000023", "step-00000024"}
    assert (folder / "latest").read_text() == "step-00000024"


def test_on_a_preemption_notice_no_rank_waits_for_a_clean_up(
    tmp_path: Path, held_clean_up: threading.Event, capfd: pytest.CaptureFixture[str]
) -> None:
    config = configure(tmp_path)
    trainer = Trainer(config, process_group.join(config.timeouts, {}), NoticeAt(7))
    assert not trainer.run(0)
    assert "exiting before" not in capfd.readouterr().err, "it waited, and was then cut short"
    assert (tmp_path / "checkpoints" / "step-00000008" / "manifest.json").exists()
    held_clean_up.set()
    trainer.saver.wait_for_clean_up(60)


def test_a_preemption_notice_at_the_end_shortens_the_wait_for_a_clean_up(
    tmp_path: Path, held_clean_up: threading.Event, capfd: pytest.CaptureFixture[str]
) -> None:
    config, notice = configure(tmp_path, timeouts={"save": 600}), PreemptionNotice(60)
    begin = time.monotonic()
    assert started(config, notice, notice.request).run(0)
    assert time.monotonic() - begin < 300
    assert "exiting before all superseded checkpoints are deleted" in capfd.readouterr().err


def test_the_configured_pace_is_kept_and_changes_no_bit(tmp_path: Path, undisturbed: str) -> None:
    train(configure(tmp_path, pace_seconds=0.02))
    lines = events(tmp_path, "step")
    assert lines[-1]["time"] - lines[0]["time"] >= 0.02 * (STEPS - 2)
    assert sha256(tmp_path) == undisturbed
