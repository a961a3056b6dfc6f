"""Following a job's first node while the connection breaks off."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from urllib3.exceptions import MaxRetryError, ProtocolError

from trainyard import logs
from trainyard.jobs import JobKey, JobState

KEY = JobKey("research", "tune")


class BrokenJobs:
    """A job whose pod is not found once, and whose log breaks off within its second line."""

    def __init__(self) -> None:
        self._looks, self._streams = 0, 0

    def state(self, _key: JobKey) -> JobState:
        return JobState("complete" if self._streams == 2 else "running")

    def pod(self, _key: JobKey) -> Any:
        self._looks += 1
        if self._looks == 1:
            raise MaxRetryError(None, "/api/v1/pods")  # type: ignore[arg-type]
        return SimpleNamespace(metadata=SimpleNamespace(name="a"), status=SimpleNamespace(phase="Running"))

    def logs(self, _key: JobKey, *, follow: bool) -> Any:
        assert follow
        self._streams += 1
        return SimpleNamespace(stream=self._first if self._streams == 1 else self._second)

    def _first(self) -> Iterator[bytes]:
        yield b"one\ntw"
        raise ProtocolError("Connection broken")

    def _second(self) -> Iterator[bytes]:
        yield b"one\ntwo\nthree\n"


def test_each_line_is_shown_once_over_connections_that_break_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "POLL_SECONDS", 0)
    shown: list[str] = []
    jobs: Any = BrokenJobs()
    progress: Any = SimpleNamespace(log=shown.append)
    assert logs.follow_logs(jobs, KEY, progress).phase == "complete"
    assert [line.split()[1] for line in shown if line.startswith("  node")] == ["one", "two", "three"]
