"""When running jobs last had a durable checkpoint, and what is wrong with their fabric, from the metrics in
their runs' folders.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from infra.clients.kubernetes import ApiError, ApiServer, NoAnswer
from infra.errors import TrainyardError
from trainyard.jobs.key import JobKey
from trainyard.jobs.state import Jobs
from trainyard.jobs.timeline import brief
from trainyard.stack.remote import Remote
from trainyard_train.contract import FILE, parse_line

_LAST = "; ".join(f'grep -a \'"event": "{event}"\' {FILE} | tail -n 1' for event in ("fabric", "checkpoint"))
_READ = f'cd "$TRAINYARD_RUN_DIR" && head -n 1 {FILE} && {{ {_LAST}; }}'
"""Program that prints when the run has started, its newest look at the fabric, and its newest checkpoint."""


@dataclass(frozen=True)
class Save:
    """The newest durable checkpoint of a run; step 0: none since the run's start at this time."""

    step: int
    time: datetime
    warnings: tuple[str, ...] = ()
    """What is wrong with the run's fabric, by node."""

    def __str__(self) -> str:
        ago = brief(datetime.now(UTC) - self.time)
        none = f"no durable checkpoint since its start {ago} ago"
        saved = f"last durable checkpoint {ago} ago (step {self.step:,})" if self.step else none
        return "; ".join([saved, *self.warnings[:2]])

    @property
    def data(self) -> dict[str, Any]:
        warned = {"fabric": list(self.warnings)} if self.warnings else {}
        return {"step": self.step, "time": self.time.isoformat(), **warned}


def last_saves(api: ApiServer, running: Sequence[JobKey]) -> Mapping[JobKey, Save]:
    """Ask a pod of each job; jobs without metrics, and those that the user may not enter, are left out."""
    with ThreadPoolExecutor(8) as pool:
        found = zip(running, pool.map(lambda key: _last_save(api, key), running), strict=True)
        return {key: save for key, save in found if save}


def _last_save(api: ApiServer, key: JobKey) -> Save | None:
    try:
        ended = Remote(api).run(Jobs(api).node_pods(key)[0], ("/bin/sh", "-c", _READ), 5)
        lines = [line for line in map(parse_line, ended.output.splitlines()) if line]
        said = [each for line in lines if line["event"] == "fabric" for each in line.get("warns", ())]
        warnings = ["".join(filter(str.isprintable, each))[:200] for each in said]
        newest = [line for line in lines if line["event"] != "fabric"][-1]
        step = int(newest["step"]) if newest["event"] == "checkpoint" else 0
        return Save(step, datetime.fromtimestamp(float(newest["time"]), UTC), tuple(warnings))
    except (TrainyardError, ApiError, NoAnswer, LookupError, TypeError, ValueError, ArithmeticError, OSError):
        return None  # a team's program may have written anything
