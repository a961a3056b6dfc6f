"""Follows a job by its first node's pod log, where its volumes are out of reach."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from engine.progress import Progress
from trainyard.follow import changes
from trainyard.jobs import JobKey, Jobs, JobState

POLL_SECONDS = 2.0
"""A job of hours is in no hurry, and its API server has others to serve."""


@dataclass
class _PodLog:
    """The pod that is shown, and how much of its log was."""

    pod: str = ""
    printed: int = 0
    """Lines."""
    has_ended: bool = False


def follow_logs(jobs: Jobs, key: JobKey, progress: Progress) -> JobState:
    """Show the queue's decisions and the log of the job's first node until the job ends."""
    state, waiting, shown = JobState("queued"), "", _PodLog()
    while True:
        before, state = state, jobs.state(key)
        for text in changes(before, state):
            progress.log(f"  queue  {text}")
        if state.phase == "queued" and state.reason != waiting:
            waiting = state.reason
            progress.log(f"  queue  {waiting}")
        if state.phase == "running" or state.ended:
            with suppress(ApiException, HTTPError, OSError):  # the connection broke off: the next look tells
                _show_pod(jobs, key, progress, shown)
        if state.ended:
            return state
        time.sleep(POLL_SECONDS)


def _show_pod(jobs: Jobs, key: JobKey, progress: Progress, shown: _PodLog) -> None:
    """Copy the log of the first node's pod until that pod ends. Each line is shown once."""
    pod = jobs.pod(key)
    if pod is None or pod.status.phase == "Pending":
        return
    if pod.metadata.name != shown.pod:
        shown.pod, shown.printed, shown.has_ended = pod.metadata.name, 0, False
    if shown.has_ended:
        return
    for number, line in enumerate(whole_lines(jobs.logs(key, follow=True).stream())):
        if number >= shown.printed:
            progress.log(f"  node   {line.decode(errors='replace')}")
            shown.printed += 1
    shown.has_ended = True


def whole_lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines of a stream without their ends; the last one, too, where it has none."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    if rest:
        yield rest
