"""A user's training loop under `Run` resumes where it was interrupted, to the bit."""

import multiprocessing
import signal
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage

from tests.training.hold import hold
from tests.training.launch import events, reached
from tests.training.library import pipeline
from tests.training.library.launch import Program, run, start
from tests.training.library.program import RESULT, SAMPLES, train
from tests.training.s3 import BUCKET, Proxy, environment, s3
from trainyard_train import Run
from trainyard_train.checkpointing.stores import open_store
from trainyard_train.config_base import ConfigError
from trainyard_train.contract import FILE, read_metrics, surviving_steps
from trainyard_train.parallelism.mesh import Mesh

__all__ = ["s3"]


def losses(run_dir: Path) -> list[tuple[int, float]]:
    return [(line["step"], line["loss"]) for line in surviving_steps(read_metrics(run_dir / FILE))]


@pytest.mark.parametrize(
    ("ranks", "settings"),
    [
        (1, {}),
        (1, {"workers": 2, "per_step": 4, "every_steps": 3}),
        (1, {"workers": 2, "persistent": True}),
        (2, {"strategy": "fsdp"}),
        (2, {"workers": 1}),
        pytest.param(4, {"strategy": "ddp"}, marks=pytest.mark.ranks),
        pytest.param(2, {"strategy": "tp"}, marks=pytest.mark.ranks),
        pytest.param(4, {"strategy": "hsdp"}, marks=pytest.mark.ranks),
    ],
    ids=str,
)
def test_it_resumes_in_the_middle_of_an_epoch_as_if_it_had_not_been_interrupted(
    tmp_path: Path, ranks: int, settings: dict[str, Any]
) -> None:
    assert_resumes_exactly(tmp_path, ranks, settings, settings)


@pytest.mark.ranks
def test_pipeline_stages_resume_although_only_the_last_one_has_the_loss(tmp_path: Path) -> None:
    assert_resumes_exactly(tmp_path, 2, {}, {}, pipeline.train)


def test_stages_of_a_pytorch_that_draws_numbers_to_find_shapes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, Mesh(0, 1, torch.device("cpu"), "node", dist.HashStore()), every_steps=9)
    monkeypatch.setattr(torch, "__version__", "2.11.0+cpu")
    run.load()
    assert run.step(), "a program without stages"
    run._held = None  # as at the first step
    stage = object.__new__(PipelineStage)
    with pytest.raises(ConfigError, match=r"torch: got 2.11.0.cpu with pipeline stages; allowed: 2.12 or"):
        run.step()
    del stage
    run.close()


@pytest.mark.ranks
def test_it_resumes_from_an_object_store(tmp_path: Path, s3: Proxy) -> None:
    store = f"s3://{BUCKET}/runs/7"
    assert_resumes_exactly(tmp_path, 2, {}, {"store": store, "environment": environment(s3)})
    assert open_store(store).committed()[0] == 24
    assert not (tmp_path / "disturbed" / "checkpoints").exists()


def assert_resumes_exactly(
    tmp_path: Path,
    ranks: int,
    undisturbed: dict[str, Any],
    settings: dict[str, Any],
    program: Program = train,
) -> None:
    """Compare a run that is interrupted by a preemption notice and by a kill with one that is not."""
    run(program, ranks, tmp_path / "undisturbed", undisturbed)
    disturbed = tmp_path / "disturbed"
    for attempt, number in enumerate((signal.SIGTERM, signal.SIGKILL), start=1):
        held = tmp_path / "held"
        attempted = start(program, ranks, disturbed, settings, hold(held, 4))
        attempted.until(partial(reached, disturbed, 3 * attempt, attempt))
        attempted.send(ranks - 1, number)
        held.unlink()
        ended = attempted.wait()
        codes = [code for code, _ in ended]
        assert codes == ([75] * ranks if number is signal.SIGTERM else [76] * (ranks - 1) + [-9]), ended
    run(program, ranks, disturbed, settings)
    assert (disturbed / RESULT).read_text() == (tmp_path / "undisturbed" / RESULT).read_text()
    assert losses(disturbed) == losses(tmp_path / "undisturbed")
    assert len(events(disturbed, "resumed")) == 2


@pytest.mark.parametrize("inside", [True, False])
def test_a_preemption_notice_ends_an_evaluation_and_saves_the_last_step(tmp_path: Path, inside: bool) -> None:
    run = Run(tmp_path, Mesh(0, 1, torch.device("cpu"), "node", dist.HashStore()), every_steps=1000)
    seen = []

    def evaluate() -> None:
        run.step(0.5)
        for number in run.evaluation(range(9)):
            seen.append(number)
            if number == 2:
                run.notice.request()

    if inside:
        with run:
            evaluate()
    else:
        run.load()
        evaluate()
        run.close()
    assert (run.exit_code, run.preempted) == (75, True)
    assert seen == [0, 1, 2, 3], "the ranks receive it one batch later"
    assert open_store(str(tmp_path / "checkpoints")).committed() == [1]
    assert losses(tmp_path) == [(1, 0.5)]


def test_a_run_has_its_epoch_before_the_load_and_its_epochs_load_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A program can then build what a later epoch adds before its state is loaded."""

    def attempt() -> Run:
        return Run(tmp_path, Mesh(0, 1, torch.device("cpu"), "node", dist.HashStore()), every_steps=9)

    state = {"added": 0}
    run = attempt()
    run.track(state=state)
    assert run.find() == {}
    for epoch in run.epochs(3):
        state["added"] += epoch
        run.step()
        if epoch == 2:
            run.save()
            break
    run.close()
    run, state = attempt(), {}
    assert run.find()["state"] == {"added": 3}
    assert (run.epoch, run.steps) == (2, 3)
    run.track(state=state)
    assert [(epoch, state["added"]) for epoch in run.epochs(4)] == [(2, 3), (3, 3)]
    run.close()
    assert "epoch 2 restarts from its first batch" in capfd.readouterr().err, (
        "nothing says that its only step is finished"
    )


def test_the_end_of_the_last_epoch_finishes_a_run_that_was_not_preempted(tmp_path: Path) -> None:
    def attempt(epochs: int) -> Run:
        run = Run(tmp_path, Mesh(0, 1, torch.device("cpu"), "node", dist.HashStore()), every_steps=9)
        for _ in run.epochs(epochs):
            for _ in range(3):
                if not run.step():
                    break
                if epochs == 2:
                    run.notice.request()
        return run

    run = attempt(1)
    assert run.exit_code == 0
    assert open_store(str(tmp_path / "checkpoints")).committed() == [3]
    run.finish()
    run.close()
    run = attempt(2)
    run.finish()
    assert (run.exit_code, run.steps) == (75, 6), "it is obeyed one step later"
    run.close()
    assert [line["step"] for line in events(tmp_path, "finished")] == [3]


class EpochSum:
    """A sum, as programs keep one for each epoch."""

    def __init__(self) -> None:
        self.sum = 0.0


def _one_step_with_meters(run_dir: Path, _: Mapping[str, Any]) -> int:
    run = Run(run_dir)
    with run:
        losses, steps = EpochSum(), EpochSum()
        run.track(losses=losses, steps=steps)
        losses.sum, steps.sum = run.mesh.rank, 1
        run.step()
    return run.exit_code


def test_a_meter_that_differs_by_rank_is_named_where_another_number_of_ranks_is_refused(
    tmp_path: Path,
) -> None:
    run(_one_step_with_meters, 2, tmp_path, {})
    ((code, output),) = start(_one_step_with_meters, 1, tmp_path, {}).wait()
    assert code == 2
    assert "run.variables.losses: differs by rank; got 1 rank; allowed: 2, as in the checkpoint" in output
    assert "run.variables.steps" not in output


def test_the_remaining_samples_must_divide_by_another_number_of_ranks(tmp_path: Path) -> None:
    """Five steps of two ranks take 20 of an epoch's 48 samples."""
    codes = [code for code, _ in start(train, 2, tmp_path, {"leave_after": 3}).wait()]
    assert codes == [75, 75]
    assert [line["step"] for line in events(tmp_path, "preempted")] == [5]
    for code, output in start(train, 3, tmp_path, {}).wait():
        assert code == 2
        assert "batches: 20 finished samples do not divide by 3; allowed: 2 ranks" in output
    run(train, 1, tmp_path, {"shared": True})
    assert [line["step"] for line in events(tmp_path, "finished")] == [5 + (SAMPLES - 20) // 2 + SAMPLES // 2]


def test_a_worker_that_imports_the_program_begins_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(ConfigError, match="Run: got a second one, in a worker"):
        Run(tmp_path)
    assert not [*tmp_path.iterdir()]
