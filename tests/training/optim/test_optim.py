"""The learning rate: scaled with the batch by the configured rule, warmed up, and kept on resume."""

import re

import pytest
import torch

from trainyard_train.optim.optimizer import build_optimizer, set_rate
from trainyard_train.optim.schedule import OptimConfig, Schedule, scaled_rate, scaling_warnings, schedule_for


def test_the_linear_rule_gives_the_rates_of_the_paper() -> None:
    """Goyal et al. 2017, table 1: 0.1 at 256, 3.2 at 8k."""
    config = OptimConfig(lr=0.1, scaling="linear", reference_batch_size=256)
    assert scaled_rate(config, 256) == 0.1
    assert scaled_rate(config, 8192) == 3.2


@pytest.mark.parametrize(("scaling", "rate"), [("none", 0.1), ("sqrt", 0.4), ("linear", 1.6)])
def test_each_rule_scales_a_batch_of_sixteen_times(scaling: str, rate: float) -> None:
    config = OptimConfig.model_validate({"lr": 0.1, "scaling": scaling, "reference_batch_size": 64})
    assert scaled_rate(config, 1024) == pytest.approx(rate)


def test_warmup_climbs_from_the_rate_of_one_worker_to_the_scaled_one() -> None:
    config = OptimConfig(lr=0.1, scaling="linear", reference_batch_size=64, warmup_steps=10)
    schedule = schedule_for(config, 640, step=0, previous=None)
    rates = [schedule.rate(step) for step in range(12)]
    assert rates[0] == 0.1
    assert rates[5] == pytest.approx(0.55)
    assert rates[10] == rates[11] == 1.0
    assert rates == sorted(rates)


def test_warmup_with_nothing_to_scale_climbs_from_near_nothing() -> None:
    schedule = schedule_for(OptimConfig(lr=0.1, warmup_steps=10), 640, step=0, previous=None)
    assert schedule.rate(0) == pytest.approx(0.01)
    assert schedule.rate(5) == pytest.approx(0.055)
    assert schedule.rate(10) == 0.1
    assert schedule_for(OptimConfig(lr=0.1), 640, step=0, previous=None).rate(0) == 0.1


@pytest.mark.parametrize(
    ("values", "k", "warning"),
    [
        ({"scaling": "linear"}, 15, ""),
        (
            {"scaling": "linear"},
            16,
            "linear, at 16 times .* failed at 16 times, and all at 64: .*smaller batch",
        ),
        ({"scaling": "sqrt"}, 4, "sqrt, at 4 times .* Adam's rule"),
        ({"scaling": "sqrt"}, 1, ""),
        ({"scaling": "sqrt"}, 0.5, ""),
        ({"scaling": "sqrt", "name": "adamw"}, 64, ""),
        ({"scaling": "none"}, 64, ""),
    ],
)
def test_a_scaling_rule_without_publication_warns(values: dict[str, object], k: float, warning: str) -> None:
    found = scaling_warnings(OptimConfig.model_validate({"reference_batch_size": 64, **values}), int(64 * k))
    assert len(found) == bool(warning)
    assert re.search(warning, "".join(found))


def test_a_resumed_run_with_the_same_batch_keeps_its_schedule() -> None:
    config = OptimConfig(scaling="linear", warmup_steps=10)
    first = schedule_for(config, 128, 0, None)
    assert schedule_for(config, 128, 5, first) is first


def test_another_world_size_ramps_from_where_the_rate_was() -> None:
    config = OptimConfig(lr=0.1, scaling="linear", reference_batch_size=64, warmup_steps=10)
    wide = schedule_for(config, 128, 0, None)
    narrow = schedule_for(config, 64, 100, wide)
    assert narrow.rate(100) == wide.rate(100) == 0.2
    assert narrow.rate(105) == pytest.approx(0.15)
    assert narrow.rate(110) == 0.1


def test_no_warmup_means_the_scaled_rate_at_once() -> None:
    assert Schedule(0.1, 0.4).rate(0) == 0.4


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_the_optimizer_uses_the_rate_it_is_given(name: str) -> None:
    weight = torch.nn.Parameter(torch.ones(1))
    config = OptimConfig.model_validate({"name": name, "weight_decay": 0, "momentum": 0})
    optimizer = build_optimizer(config, [weight])
    set_rate(optimizer, 0.25)
    weight.grad = torch.ones(1)
    optimizer.step()
    assert weight.item() == pytest.approx(0.75)
