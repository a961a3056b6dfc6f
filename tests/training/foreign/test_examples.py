"""The programs of examples/ on two ranks: killed in the middle, they end as an undisturbed run does."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine.paths import REPOSITORY
from tests.processes import TIMEOUT_SECONDS, wait_for
from tests.training.foreign.programs import TWO_RANKS, environment
from tests.training.hold import hold
from tests.training.launch import events
from trainyard_train.contract import FILE, read_metrics, surviving_steps

EXAMPLES = REPOSITORY / "examples"
RESUMED = [name.parent.name for name in sorted(EXAMPLES.glob("*/train.py")) if "xgboost" not in str(name)]
"""XGBoost has no checkpoints of ours; tests/e2e/test_member.py runs it on the embedded cluster."""


def started(name: str, run_dir: Path, held: dict[str, str]) -> subprocess.Popen[bytes]:
    variables = {**environment(run_dir.parent), "TRAINYARD_RUN_DIR": str(run_dir), **held}
    command = [sys.executable, *TWO_RANKS, "train.py"]
    with run_dir.with_suffix(".log").open("ab") as log:
        return subprocess.Popen(
            command, cwd=EXAMPLES / name, env=variables, stdout=log, stderr=log, start_new_session=True
        )


def losses(run_dir: Path) -> list[tuple[int, float]]:
    return [(line["step"], line["loss"]) for line in surviving_steps(read_metrics(run_dir / FILE))]


@pytest.mark.ranks
@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", RESUMED)
def test_an_example_that_is_killed_has_the_losses_of_one_that_is_not(name: str, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert started(name, whole, {}).wait(4 * TIMEOUT_SECONDS) == 0, whole.with_suffix(".log").read_text()
    first = started(name, killed, hold(tmp_path / "held", 15))
    wait_for(lambda: len(events(killed, "step")) >= 12 or first.poll() is not None)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait(TIMEOUT_SECONDS)
    assert started(name, killed, {}).wait(4 * TIMEOUT_SECONDS) == 0, killed.with_suffix(".log").read_text()
    assert len(events(killed, "resumed")) == 1
    assert losses(killed) == losses(whole) != []
