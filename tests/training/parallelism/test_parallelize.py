"""A step has the same result however it is divided: over micro-batches and ranks."""

import math
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from tests.training.hold import hold
from tests.training.launch import events, load_tensors, reached, run, settings, sha256, start
from tests.training.test_trainer import NoticeAt, configure
from tests.training.test_trainer import train as train_alone
from trainyard_train.checkpointing.checkpoint import Checkpoint
from trainyard_train.checkpointing.folder_store import FolderStore
from trainyard_train.config import load_config, parse_config
from trainyard_train.config_base import ConfigError
from trainyard_train.optim.schedule import Schedule
from trainyard_train.parallelism.mesh import Mesh
from trainyard_train.parallelism.parallelize import _may_be_channels_last, _replicate
from trainyard_train.update import LossScale

STEPS = 20
COMMON: dict[str, Any] = {
    "steps": STEPS,
    "checkpoint.every_steps": 1,
    "checkpoint.keep_last": STEPS,
    "model.dropout": 0,
    "optim.lr": 0.02,
    "optim.clip_norm": 0.2,
    "data.batch_size_per_rank": 32,
}
"""Every step's gradient is clipped, so all meshes must compute the same norm."""


def checkpoint(run_dir: Path, step: int) -> Checkpoint:
    return FolderStore(run_dir / "checkpoints").open(step)


def distance(one: Path, other: Path, step: int) -> float:
    """Return the distance between the weights of two runs, relative to their norm."""
    first, second = (load_tensors(checkpoint(path, step)) for path in (one, other))
    assert first.keys() == second.keys()
    names = [name for name in first if name.startswith("model.")]
    difference = sum(float((second[name] - first[name]).square().sum()) for name in names)
    return math.sqrt(difference / sum(float(first[name].square().sum()) for name in names))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("alone")
    assert train_alone(load_config(None, settings(path, **COMMON)[1::2]))
    return path


@pytest.mark.parametrize("count", [2, 4, 32])
def test_micro_batches_add_up_to_the_gradient_of_the_whole(tmp_path: Path, count: int) -> None:
    values = {
        "steps": 10,
        "model": {"hidden": 16, "dropout": 0},
        "checkpoint": {"every_steps": 1, "keep_last": 9},
    }
    values["data"] = {"batch_size_per_rank": 64}
    train_alone(configure(tmp_path / "whole", **values))
    train_alone(configure(tmp_path / "parts", **values, accumulate=count))
    assert distance(tmp_path / "whole", tmp_path / "parts", 2) < 1e-6
    assert distance(tmp_path / "whole", tmp_path / "parts", 10) < 1e-4
    losses = [[line["loss"] for line in events(tmp_path / name, "step")] for name in ("whole", "parts")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.parametrize("model", ["mlp", "convnet"])
def test_recomputing_activations_changes_no_bit_even_of_what_is_dropped(tmp_path: Path, model: str) -> None:
    values = {"steps": 6, "model": {"name": model, "hidden": 4, "dropout": 0.3}}
    train_alone(configure(tmp_path / "stored", **values))
    train_alone(configure(tmp_path / "recomputed", **values, recompute=True))
    assert sha256(tmp_path / "stored") == sha256(tmp_path / "recomputed")


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_lower_precision_learns_the_same_and_resumes_to_the_bit(tmp_path: Path, precision: str) -> None:
    values = {"steps": 60, "data": {"batch_size_per_rank": 32}, "precision": precision, "evaluate_every": 60}
    train_alone(configure(tmp_path / "full", **values | {"precision": "float32"}))
    train_alone(configure(tmp_path / "whole", **values))
    assert not train_alone(configure(tmp_path / "parted", **values), NoticeAt(17))
    train_alone(configure(tmp_path / "parted", **values))
    assert sha256(tmp_path / "parted") == sha256(tmp_path / "whole")
    full, low = (events(tmp_path / name, "evaluation")[-1] for name in ("full", "whole"))
    assert sha256(tmp_path / "full") != sha256(tmp_path / "whole")
    assert low["loss"] == pytest.approx(full["loss"], rel=0.05)


@pytest.mark.ranks
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_lower_precision_under_fsdp_is_its_policy_and_learns_as_well(tmp_path: Path, precision: str) -> None:
    values = {"strategy": "fsdp", "steps": 60, "evaluate_every": 60, "data.batch_size_per_rank": 32}
    run(2, settings(tmp_path / "full", **values))
    run(2, settings(tmp_path / "low", **values, precision=precision))
    full, low = (events(tmp_path / name, "evaluation")[-1]["loss"] for name in ("full", "low"))
    assert full != low
    assert low == pytest.approx(full, rel=0.05)
    kinds = {values.dtype for values in load_tensors(checkpoint(tmp_path / "low", 60)).values()}
    assert torch.bfloat16 not in kinds
    assert torch.float16 not in kinds, "saved state remains in float32"


@pytest.mark.parametrize(
    "values", [{}, {"parallel": {"shard": 1}}, {"precision": "bfloat16", "accumulate": 2, "recompute": True}]
)
def test_fsdp_of_one_process_without_launcher_trains_as_ddp(tmp_path: Path, values: dict[str, Any]) -> None:
    sharded = configure(tmp_path / "fsdp", **values, strategy="fsdp")
    assert not train_alone(sharded, NoticeAt(7))
    assert train_alone(sharded)
    train_alone(configure(tmp_path / "ddp", **{**values, "parallel": {}}))
    assert sha256(tmp_path / "fsdp") == sha256(tmp_path / "ddp")


def test_one_process_cannot_share_its_weights(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"parallel\.shard: got 2; allowed: a divisor of the 1 rank"):
        train_alone(configure(tmp_path, strategy="fsdp", parallel={"shard": 2}))


@pytest.mark.parametrize("late", [False, True])
def test_an_overflow_costs_a_step_that_the_schedule_does_not_count_and_the_scale_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    init = LossScale.__init__

    def begin_too_high(scale: LossScale, device: torch.device) -> None:
        init(scale, device)
        scale.load_state_dict({**scale.state_dict(), "scale": 2.0**40})

    monkeypatch.setattr(LossScale, "__init__", begin_too_high)
    values: dict[str, object] = {
        "steps": 24,
        "precision": "float16",
        "model": {"hidden": 16, "dropout": 0},
        "optim": {"name": "adamw", "lr": 0.01, "warmup_steps": 100},
    }
    train_alone(configure(tmp_path / "whole", **values), reads_late=late)
    steps = events(tmp_path / "whole", "step")
    skipped = [line["step"] for line in steps if line.get("skipped")]
    assert skipped[0] == 1
    assert 1 < len(skipped) < 24
    rates = [line["lr"] for line in steps if not line.get("skipped")]
    schedule = Schedule(**checkpoint(tmp_path / "whole", 24).manifest.schedule)
    assert rates == [schedule.rate(done) for done in range(len(rates))]
    assert rates[-1] > rates[0]
    saved = checkpoint(tmp_path / "whole", 24)
    assert saved.manifest.loss_scale["scale"] == 2.0 ** (40 - len(skipped))
    assert saved.manifest.loss_scale["skipped"] == len(skipped)
    assert saved.manifest.loss_scale["_growth_tracker"] == 24 - skipped[-1]
    tensors = load_tensors(saved)
    assert all(math.isfinite(float(value.sum())) for value in tensors.values())
    counted = {float(value) for name, value in tensors.items() if name.endswith(".step")}
    assert counted == {24 - len(skipped)}, "the optimizer counts no skipped step"
    assert not train_alone(configure(tmp_path / "parted", **values), NoticeAt(3), reads_late=late)
    assert train_alone(configure(tmp_path / "parted", **values), reads_late=late)
    assert sha256(tmp_path / "parted") == sha256(tmp_path / "whole")


@pytest.mark.soak
def test_a_compiled_run_learns_the_same_and_resumes_to_the_bit(tmp_path: Path, alone: Path) -> None:
    compiled = settings(tmp_path / "run", **COMMON, compile=True)
    run(1, compiled)
    assert distance(alone, tmp_path / "run", STEPS) < 1e-3
    parted = settings(tmp_path / "parted", **COMMON, compile=True)
    ranks = start(1, parted, variables=hold(tmp_path / "held", 10))
    ranks.until(lambda: reached(tmp_path / "parted", 10))
    ranks.send(0, signal.SIGTERM)
    assert {code for code, _ in ranks.wait()} == {75}
    assert run(1, settings(tmp_path / "parted", **COMMON, compile=True)) == sha256(tmp_path / "run")


MESHES: dict[str, dict[str, Any]] = {
    "hsdp": {"strategy": "fsdp", "parallel.shard": 2},
    "fsdp": {"strategy": "fsdp"},
    "ddp of micro-batches": {"accumulate": 4},
    "fsdp of micro-batches": {"strategy": "fsdp", "accumulate": 4},
}


IN_OTHERS = {"fsdp"}
"""Meshes that are part of other meshes here, so `make soak` runs them."""


@pytest.mark.ranks
@pytest.mark.parametrize(
    "values",
    [
        pytest.param(values, id=name, marks=pytest.mark.soak if name in IN_OTHERS else ())
        for name, values in MESHES.items()
    ],
)
def test_four_ranks_of_any_mesh_are_one_process(tmp_path: Path, alone: Path, values: dict[str, Any]) -> None:
    run(4, settings(tmp_path, **COMMON | values | {"data.batch_size_per_rank": 8}))
    assert distance(alone, tmp_path, 1) < 1e-6, "the first step's change is the gradient itself"
    assert distance(alone, tmp_path, STEPS) < 1e-3
    losses, norms = (
        [[line[key] for line in events(path, "step")] for path in (alone, tmp_path)]
        for key in ("loss", "gradient_norm")
    )
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert norms[0][0] == pytest.approx(norms[1][0], rel=3e-6), "of the same weights, to rounding"
    assert norms[0] == pytest.approx(norms[1], rel=1e-2)
    assert min(norms[0]) > COMMON["optim.clip_norm"], "all are clipped"
    accuracies = [events(path, "evaluation")[-1]["accuracy"] for path in (alone, tmp_path)]
    assert accuracies[0] == pytest.approx(accuracies[1], abs=0.006)
    (fabric,) = events(tmp_path, "fabric")
    assert fabric["backend"] == "gloo" and fabric["gigabytes_per_second"] > 0.01
    # A finished run, started with other ranks and another mesh, loads the same weights and changes nothing.
    expected = sha256(tmp_path)
    (tmp_path / "final.json").unlink()
    assert run(1, settings(tmp_path, **COMMON)) == expected
    assert run(2, settings(tmp_path, **COMMON | {"strategy": "fsdp"})) == expected


@pytest.mark.ranks
@pytest.mark.parametrize("values", [{}, {"strategy": "fsdp"}], ids=["ddp", "fsdp"])
def test_ranks_without_remaining_samples_count_for_nothing_in_an_evaluation(
    tmp_path: Path, values: dict[str, Any]
) -> None:
    few = COMMON | {"steps": 4, "evaluate_every": 2, "evaluate_samples": 1}
    train_alone(load_config(None, settings(tmp_path / "alone", **few)[1::2]))
    run(2, settings(tmp_path / "all", **few | values | {"data.batch_size_per_rank": 16}))
    one, other = (
        [line["loss"] for line in events(tmp_path / name, "evaluation")] for name in ("alone", "all")
    )
    assert len(one) == 2
    assert one == pytest.approx(other, rel=1e-4)


@pytest.mark.ranks
def test_hsdp_resumes_to_the_bit_with_every_moment(tmp_path: Path) -> None:
    values = COMMON | MESHES["hsdp"] | {"steps": 16, "optim.name": "adamw", "model.dropout": 0.2}
    values["data.batch_size_per_rank"] = 16
    expected = run(4, settings(tmp_path / "whole", **values))
    held = tmp_path / "held"
    ranks = start(4, settings(tmp_path / "parted", **values), variables=hold(held, 3))
    ranks.until(lambda: reached(tmp_path / "parted", 3))
    ranks.send(3, signal.SIGTERM)
    held.unlink()
    assert {code for code, _ in ranks.wait()} == {75}
    assert run(4, settings(tmp_path / "parted", **values)) == expected
    whole, parted = (load_tensors(checkpoint(tmp_path / name, 16)) for name in ("whole", "parted"))
    assert all(torch.equal(parted[name], value) for name, value in whole.items())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"accumulate": 5}, "accumulate: got 5; allowed: a divisor of data.batch_size_per_rank (32)"),
        ({"parallel": {"shard": 2}}, "parallel.shard: set with strategy ddp"),
        ({"parallel": {"pipeline": 2}}, "parallel.pipeline: got 2, but it was removed; use PyTorch's"),
        ({"precision": "float8"}, "precision: got 'float8'"),
    ],
)
def test_parts_that_do_not_fit_together_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config({"run_dir": "/tmp/run", **values})
    assert message in "\n".join(caught.value.problems)


@pytest.fixture
def alone_in_a_group() -> Iterator[Mesh]:
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield Mesh(0, 1, torch.device("cpu"), "node", store)
    dist.destroy_process_group()


def test_the_first_step_has_the_buckets_of_all_others(alone_in_a_group: Mesh) -> None:
    """Else a resumed run would sum its first gradients in another order than one that continued."""
    model = nn.Sequential(*(nn.Linear(300, 300) for _ in range(8)))
    replica = _replicate(model, alone_in_a_group, blank=False)
    assert isinstance(replica, nn.parallel.DistributedDataParallel)
    seen = []
    for _ in range(3):
        model.zero_grad()
        replica(torch.ones(1, 300)).sum().backward()
        gradients = [each.grad for each in model.parameters()]
        seen.append([each.untyped_storage().data_ptr() for each in gradients if each is not None])
    assert seen == seen[:1] * 3, "rebuilt buckets have other addresses"
    assert len(set(seen[0])) > 1
    assert len(set(seen[0][-2:])) == 1, "the last layer's gradients are ready first, and share a bucket"
    ready = replica._get_ddp_logging_data()["prev_iteration_grad_ready_order_indices"]
    order = [int(each) for each in reversed(ready.split(","))]
    assert max(abs(index - each) for index, each in enumerate(order)) <= 1, "the order of the buckets"


@pytest.mark.parametrize(
    ("channels", "device", "allowed"), [(4, "cpu", False), (8, "cpu", True), (4, "cuda", True)]
)
def test_narrow_convolutions_keep_the_usual_order_on_cpus(channels: int, device: str, allowed: bool) -> None:
    """With channels last they corrupt the heap, but only on some CPUs, so a run would not show it."""
    net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.Sequential(nn.Conv2d(16, channels, 3)))
    assert _may_be_channels_last(net, torch.device(device)) is allowed
