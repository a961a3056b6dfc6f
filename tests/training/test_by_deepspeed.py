"""Training by DeepSpeed has the losses of our DDP. Skipped until `make deepspeed` has installed it."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.paths import REPOSITORY
from tests.processes import TIMEOUT_SECONDS, free_port, wait_for
from tests.training.launch import events, reached, run, settings, terminate_ranks
from trainyard_train.by_deepspeed import read_settings
from trainyard_train.config import load_config
from trainyard_train.config_base import ConfigError
from trainyard_train.deepspeed_run import DeepSpeedRun
from trainyard_train.elasticity.preemption import PreemptionNotice
from trainyard_train.launchers.process_group import join

PACKAGES = REPOSITORY / ".trainyard" / "peers"
NEEDS_DEEPSPEED = pytest.mark.skipif(not PACKAGES.is_dir(), reason="no DeepSpeed here: run make peers")
STEPS = 20
COMMON: dict[str, object] = {
    "model.name": "convnet",
    "model.dropout": 0,
    "optim.lr": 0.05,
    "optim.warmup_steps": 5,
    "optim.scaling": "linear",
    "data.batch_size_per_rank": 16,
    "checkpoint.every_steps": 10,
    "steps": STEPS,
}
ADAMW: dict[str, object] = {"optim.name": "adamw", "optim.lr": 0.002, "optim.scaling": "sqrt"}


def command(run_dir: Path, zero: dict[str, Any], **values: object) -> list[str]:
    file = run_dir.with_name(f"{run_dir.name}-zero.json")  # the run creates its folder itself
    file.write_text(json.dumps(zero))
    arguments = settings(run_dir, **COMMON | values)
    return ["-m", "trainyard_train.by_deepspeed", *arguments, "--deepspeed", str(file)]


def pod_environment() -> dict[str, str]:
    """Return variables as in a pod, which has no compiler."""
    folders = (REPOSITORY / "training" / "src", REPOSITORY / ".trainyard" / "training-env", PACKAGES)
    return os.environ | {"PYTHONPATH": ":".join(map(str, folders)), "CXX": "no-compiler", "CC": "no-compiler"}


def by_mpirun(*arguments: str, ranks: int = 2) -> list[str]:
    package = importlib.util.find_spec("mpi4py")
    assert package
    assert package.origin
    mpirun = Path(package.origin).parents[1] / "bin" / "mpirun"
    options = ["--allow-run-as-root", "--oversubscribe", "-n", str(ranks)]
    return [str(mpirun), *options, sys.executable, *arguments]


def by_torchrun(*arguments: str) -> list[str]:
    agent = ["-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}"]
    return [sys.executable, *agent, *arguments]


def losses(run_dir: Path) -> list[float]:
    return [line["loss"] for line in events(run_dir, "step")]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[float]]:
    """Optimizer → the losses of our DDP."""
    folder = tmp_path_factory.mktemp("ours")
    run(2, settings(folder / "sgd", **COMMON))
    run(2, settings(folder / "adamw", **COMMON | ADAMW))
    return {name: losses(folder / name) for name in ("sgd", "adamw")}


@NEEDS_DEEPSPEED
@pytest.mark.ranks
@pytest.mark.parametrize(
    ("stage", "optimizer"),
    [
        (1, "sgd"),
        pytest.param(1, "adamw", marks=pytest.mark.soak),
        pytest.param(2, "adamw", marks=pytest.mark.soak),
        (3, "adamw"),
    ],
)
def test_each_stage_of_zero_has_the_losses_of_our_ddp(
    tmp_path: Path, ours: dict[str, list[float]], stage: int, optimizer: str
) -> None:
    values = ADAMW if optimizer == "adamw" else {}
    zero = {"zero_optimization": {"stage": stage}}
    subprocess.run(by_mpirun(*command(tmp_path, zero, **values)), env=pod_environment(), check=True)
    assert len(losses(tmp_path)) == STEPS
    assert losses(tmp_path) == pytest.approx(ours[optimizer], abs=5e-6)
    assert ours[optimizer][-1] < 0.95 * ours[optimizer][0], "something was learned"


@NEEDS_DEEPSPEED
@pytest.mark.ranks
def test_parts_of_a_step_are_a_step_under_torchrun(tmp_path: Path, ours: dict[str, list[float]]) -> None:
    zero = {"zero_optimization": {"stage": 2}}
    subprocess.run(by_torchrun(*command(tmp_path, zero, accumulate=4)), env=pod_environment(), check=True)
    assert losses(tmp_path) == pytest.approx(ours["sgd"], abs=5e-6)


@NEEDS_DEEPSPEED
@pytest.mark.ranks
@pytest.mark.soak
def test_autocast_to_bfloat16_is_close(tmp_path: Path, ours: dict[str, list[float]]) -> None:
    zero = {"zero_optimization": {"stage": 1}, "torch_autocast": {"enabled": True, "dtype": "bfloat16"}}
    subprocess.run(by_mpirun(*command(tmp_path, zero)), env=pod_environment(), check=True)
    assert losses(tmp_path) == pytest.approx(ours["sgd"], abs=0.05)
    assert losses(tmp_path) != pytest.approx(ours["sgd"], abs=5e-6), "nothing was computed in bfloat16"


@NEEDS_DEEPSPEED
@pytest.mark.ranks
@pytest.mark.parametrize("stage", [1, pytest.param(3, marks=pytest.mark.soak)])
def test_a_preempted_run_resumes_with_the_same_losses(tmp_path: Path, stage: int) -> None:
    zero = {"zero_optimization": {"stage": stage}}
    values = ADAMW | {"model.dropout": 0.1}
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    subprocess.run(by_mpirun(*command(whole, zero, **values)), env=pod_environment(), check=True)
    paced = by_mpirun(*command(parted, zero, **values, pace_seconds=1))
    slow = subprocess.Popen(paced, env=pod_environment())
    wait_for(lambda: reached(parted, 4) or slow.poll() is not None)
    terminate_ranks(slow)
    assert slow.wait(TIMEOUT_SECONDS) != 0
    (preempted,) = events(parted, "preempted")
    assert 4 <= preempted["step"] < STEPS
    subprocess.run(by_mpirun(*command(parted, zero, **values)), env=pod_environment(), check=True)
    assert events(parted, "resumed")[0]["step"] == preempted["step"]
    assert losses(parted) == losses(whole)
    other = by_mpirun(*command(parted, zero, **values, seed=8), ranks=3)
    refused = subprocess.run(other, env=pod_environment(), capture_output=True, text=True)
    assert refused.returncode == 2
    assert "ranks: got 2, this run has 3; start a run in another run_dir" in refused.stderr
    assert "run: got {'seed': 7," in refused.stderr


def test_a_deepspeed_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deepspeed", None)
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    config = load_config(None, [f"run_dir={tmp_path}"])
    with pytest.raises(
        ConfigError, match=r"deepspeed is not installed; install trainyard-train\[deepspeed\]"
    ):
        DeepSpeedRun(config, {}, join(config.timeouts, {}), PreemptionNotice(60))


@pytest.mark.ranks
def test_a_rank_alone_is_refused(tmp_path: Path) -> None:
    alone = [sys.executable, *command(tmp_path, {})]
    refused = subprocess.run(alone, env=pod_environment(), capture_output=True, text=True)
    assert refused.returncode == 2
    assert "ranks: got 1; allowed: 2 or more; start them by mpirun or torchrun" in refused.stderr


def test_settings_that_belong_in_the_other_file_are_all_refused(tmp_path: Path) -> None:
    zero = tmp_path / "zero.json"
    zero.write_text('{"optimizer": {}, "train_batch_size": 4}')
    given = {
        "run_dir": str(tmp_path),
        "strategy": "fsdp",
        "precision": "bfloat16",
        "checkpoint": {"store": "s3://b/c"},
    }
    config = tmp_path / "run.yaml"
    config.write_text(yaml.safe_dump(given))
    with pytest.raises(ConfigError) as wrong:
        read_settings(zero, load_config(config))
    paths = [problem.removeprefix(f"{zero}: ").partition(":")[0] for problem in wrong.value.problems]
    assert paths == ["train_batch_size", "optimizer", "strategy", "precision", "checkpoint"]


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_a_file_that_is_no_deepspeed_configuration_is_named(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "zero.json"
    if text:
        file.write_text(text)
    config = load_config(None, [f"run_dir={tmp_path}"])
    with pytest.raises(ConfigError, match=r"zero\.json: .*; allowed: "):
        read_settings(file, config)


def test_the_file_that_comes_with_the_package_is_valid(tmp_path: Path) -> None:
    config = load_config(None, [f"run_dir={tmp_path}", "accumulate=4"])
    found = read_settings(REPOSITORY / "training/configs/zero.json", config)
    assert found["zero_optimization"] == {"stage": 1}
    assert (found["train_micro_batch_size_per_gpu"], found["gradient_accumulation_steps"]) == (8, 4)
