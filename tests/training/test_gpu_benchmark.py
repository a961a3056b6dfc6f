"""The benchmark for a GPU runs where there is none, so that a machine with one runs it at once."""

from __future__ import annotations

import pytest
import torch

from benchmarks import gpu
from trainyard_train.models.config import ModelConfig


def test_both_arms_train_a_tiny_model_with_the_same_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (figure,) = gpu.measure()
    assert figure.peer
    assert len(figure.ours.values) == len(figure.peer.values) == 2 * gpu.TINY.rounds
    assert min(*figure.ours.values, *figure.peer.values) > 0


def test_arms_that_do_not_the_same_work_are_found() -> None:
    config = gpu._config(gpu.TINY, "/x", "/x", compiled=False)
    with pytest.raises(ValueError, match=r"step 2: loss 2\.0 in our arm, 3\.0 in plain"):
        gpu._check([1.0, 2.0], [1.0, 3.0], config)


def test_work_is_counted() -> None:
    model = ModelConfig(name="gpt", hidden=768, layers=12, heads=12, context=1024)
    assert gpu.flops_per_token(model) == pytest.approx(6 * 85e6 + 12 * 12 * 768 * 1024, rel=0.01)
