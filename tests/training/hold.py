"""Training runs that pause after some steps until their test continues them.

Without the pause, a run could end before a test on a busy host gets to kill it.
"""

import os
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from tests.processes import TIMEOUT_SECONDS

_VARIABLE = "TRAINYARD_TEST_HOLD"


def hold(file: Path, steps: int) -> dict[str, str]:
    """Return the environment variable that makes a process wait after `steps` steps until `file` is deleted.

    A preemption notice also ends the wait. A restarted process again takes `steps` steps before it waits.
    """
    file.touch()
    return {_VARIABLE: f"{steps} {file}"}


def install() -> None:
    """Make runs of this process, and of its forks, wait as the variable says."""
    from trainyard_train.run import Run
    from trainyard_train.trainer import Trainer

    for kind, name in ((Trainer, "take_step"), (Run, "step")):
        setattr(kind, name, _held(getattr(kind, name)))


def _held(step: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(step)
    def step_and_wait(run: Any, *values: Any, **named: Any) -> Any:
        result = step(run, *values, **named)
        steps, _, file = os.environ.get(_VARIABLE, "").partition(" ")
        vars(run)["_taken"] = taken = vars(run).get("_taken", 0) + 1
        if file and taken >= int(steps):
            _wait(run, Path(file))
        return result

    return step_and_wait


def _wait(run: Any, file: Path) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while file.exists() and not run.notice.requested and time.monotonic() < deadline:
        time.sleep(0.02)
