"""Device metrics: peak FLOP/s by name, memory, utilisation; and traces that a request file starts."""

import json
from pathlib import Path

import pytest
import torch

from tests.training.launch import events
from tests.training.test_trainer import configure, train
from trainyard_train.elasticity.preemption import PreemptionNotice
from trainyard_train.models.build import build_model
from trainyard_train.models.config import ModelConfig
from trainyard_train.observability.device import flops_of, peak_of


@pytest.mark.parametrize(
    ("device", "peak"),
    [
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("NVIDIA H100 NVL", 835e12),
        ("NVIDIA H200", 989e12),
        ("NVIDIA H200 NVL", 835e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA L4", 121e12),
        ("NVIDIA L40", None),
        ("NVIDIA GeForce RTX 4090", None),
        ("", None),
    ],
)
def test_a_peak_is_known_by_the_whole_name_or_not_at_all(device: str, peak: float | None) -> None:
    assert peak_of(device, "bfloat16") == peak
    assert peak_of(device, "float32") is None


def test_the_work_of_a_step_is_that_of_all_products_of_matrices() -> None:
    config = ModelConfig(name="gpt", hidden=64, layers=3, heads=4, context=32)
    vocabulary, tokens = 257, 2 * 32
    with torch.device("meta"):
        model = build_model(config, vocabulary)
        inputs = torch.zeros(2, 32, dtype=torch.long)
    weights = 3 * 12 * 64**2 + 64 * vocabulary
    assert flops_of(model, inputs) == tokens * (6 * weights + 12 * 3 * 64 * 32)


def test_steps_have_their_memory_and_no_utilisation_of_a_cpu(tmp_path: Path) -> None:
    train(configure(tmp_path, steps=2))
    for line in events(tmp_path, "step"):
        assert line["resident_peak_bytes"] > 50 << 20
        assert "mfu" not in line


class Asking(PreemptionNotice):
    """A notice that also writes the request file after some steps."""

    def __init__(self, run_dir: Path, text: str, after: int) -> None:
        super().__init__(60)
        self._run_dir, self._text, self._left = run_dir, text, after

    def sleep(self, seconds: float) -> None:
        self._left -= 1
        if self._left == 0:
            (self._run_dir / "profile").write_text(self._text)


@pytest.mark.parametrize(("text", "steps", "after"), [("", 3, 4), ("2\n", 2, 4), ("50", 2, 22)])
def test_a_file_starts_a_trace_of_some_steps(tmp_path: Path, text: str, steps: int, after: int) -> None:
    train(configure(tmp_path), Asking(tmp_path, text, after))
    (line,) = events(tmp_path, "trace")
    assert line["file"] == f"traces/step-{after + 1:08d}.json"
    trace = json.loads((tmp_path / line["file"]).read_text())
    names = [event.get("name") for event in trace["traceEvents"]]
    assert names.count("aten::cross_entropy_loss") >= steps
    assert names.count("aten::_fused_sgd_") == steps
    assert not (tmp_path / "profile").exists()


@pytest.mark.parametrize("text", ["0", "101", "many", "-3"])
def test_a_request_that_makes_no_sense_is_named_and_costs_nothing(
    tmp_path: Path, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert train(configure(tmp_path, steps=8), Asking(tmp_path, text, 2))
    assert f"profile: got '{text}'; allowed: 1 to 100 steps, or nothing" in capfd.readouterr().err
    assert events(tmp_path, "trace") == []
    assert not (tmp_path / "profile").exists()


def test_a_request_that_cannot_be_deleted_is_named_once_and_starts_no_trace(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "profile").mkdir()
    assert train(configure(tmp_path, steps=8))
    assert capfd.readouterr().err.count(f"Is a directory: '{tmp_path}/profile'; allowed: a file") == 1
    assert events(tmp_path, "trace") == []
