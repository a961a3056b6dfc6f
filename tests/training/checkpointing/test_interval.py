"""The interval of checkpoints that costs the least time, by the measured cost of a save and failure rate."""

import random
from pathlib import Path

import pytest

from tests.training.launch import events, sha256
from tests.training.test_trainer import NoticeAt, configure, train
from trainyard_train.checkpointing.interval import Cadence, measured_mtbf, young
from trainyard_train.config import parse_config
from trainyard_train.config_base import ConfigError
from trainyard_train.elasticity.preemption import PreemptionNotice
from trainyard_train.launchers import process_group
from trainyard_train.trainer import Trainer


def lost_fraction(interval: float, cost: float, mtbf: float, chance: random.Random) -> float:
    """Return the fraction of time that checkpoints and failures cost, by simulation of 20,000 failures."""
    useful = total = 0.0
    for _ in range(20_000):
        until = chance.expovariate(1 / mtbf)
        useful += until // (interval + cost) * interval
        total += until
    return 1 - useful / total


def test_no_other_interval_repeats_less_work() -> None:
    cost, mtbf = 2.0, 3600.0
    best = young(cost, mtbf)
    assert best == pytest.approx(120)
    at_best = lost_fraction(best, cost, mtbf, random.Random(1))
    for factor in (0.3, 0.5, 2, 3):
        assert lost_fraction(best * factor, cost, mtbf, random.Random(1)) > at_best


def line(attempt: int, at: float, event: str = "step") -> dict[str, object]:
    return {"attempt": attempt, "time": at, "event": event}


def test_failures_are_counted_and_preemption_notices_are_not() -> None:
    assert measured_mtbf([], 1000) == 1000
    quiet = [line(1, 0), line(1, 500)]
    assert measured_mtbf([*quiet, line(1, 600, "preempted")], 1000) == 1600
    assert measured_mtbf(quiet, 1000) == 750
    assert measured_mtbf([*quiet, line(2, 900), line(2, 1100)], 1000) == pytest.approx(1700 / 3)


def test_the_interval_follows_what_checkpoints_cost() -> None:
    now = 0.0
    cadence = Cadence(mtbf_seconds=5000, clock=lambda: now)
    assert not cadence.due(), "nothing is known yet"
    cadence.step(1.0, saving=False)
    now = 9.9
    assert not cadence.due()
    now = 10.0
    assert cadence.due(), "the first is taken soon, to be measured"
    cadence.begun(blocked_seconds=0.5)
    cadence.step(1.3, saving=True)
    cadence.step(1.2, saving=True)
    cadence.durable()
    assert cadence.interval_seconds == pytest.approx(100)
    now = 109.0
    assert not cadence.due()
    now = 110.0
    assert cadence.due()


def test_a_run_that_computes_its_interval_resumes_to_the_bit(tmp_path: Path) -> None:
    def train_an_hour_a_step(notice: PreemptionNotice) -> bool:
        trainer = Trainer(auto, process_group.join(auto.timeouts, {}), notice)
        assert trainer.cadence
        trainer.cadence.clock, trainer.cadence.saved_at = (lambda: 3600.0 * trainer.steps), 0
        return trainer.run(0)

    train(configure(tmp_path / "fixed", steps=60))
    auto = configure(tmp_path / "auto", steps=60, checkpoint={"every_steps": 0, "mtbf_seconds": 1000})
    assert not train_an_hour_a_step(NoticeAt(40))
    assert train_an_hour_a_step(PreemptionNotice(60))
    saved = [item["step"] for item in events(tmp_path / "auto", "checkpoint") if item["reason"] == "interval"]
    assert saved[:4] == [2, 4, 6, 8], "once an hour has passed, whatever a checkpoint costs here"
    assert sha256(tmp_path / "auto") == sha256(tmp_path / "fixed")


@pytest.mark.parametrize(
    ("checkpoint", "message"),
    [
        ({"every_steps": -1}, "checkpoint.every_steps: got -1"),
        ({"mtbf_seconds": 0}, "checkpoint.mtbf_seconds: got 0"),
        ({"superseded": "tag"}, "checkpoint.superseded: got 'tag'; allowed: with checkpoint.store in S3"),
        ({"superseded": "burn", "store": "s3://bucket/run"}, "checkpoint.superseded: got 'burn'"),
        ({"superseded": "tag", "store": "s3://bucket/run"}, "http://cwlota.com, where no rule deletes"),
    ],
)
def test_wrong_settings_are_named(
    checkpoint: dict[str, object], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://cwlota.com")
    with pytest.raises(ConfigError) as caught:
        parse_config({"run_dir": "/tmp/run", "checkpoint": checkpoint})
    assert message in str(caught.value)
