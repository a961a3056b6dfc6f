"""Why a pod of an admitted job does not run: from its status, as the kubelet and the scheduler write it, and
the events of its namespace.

The messages are those of Kubernetes 1.35 (pkg/kubelet, pkg/scheduler), containerd 1.6 to 2.1 and CRI-O 1.35.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Reason:
    """Why pods do not run."""

    kind: str
    text: str
    next_step: str
    heals: bool = True
    """Whether waiting may heal it: nobody needs to change the job, its team's objects or its image."""

    def __str__(self) -> str:
        return "; ".join(filter(None, (self.text, self.next_step)))


_ROWS = [tuple(row) for row in json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))]
"""What Kubernetes calls it, a part of its message → kind, text, and the step without which it never heals.
The first row counts."""
_CODES = {126: "was found and may not be executed", 127: "was not found"}
"""Exit codes of shells for a program that they cannot start."""
_EVENTS = "FailedMount|FailedAttachVolume|FailedCreatePodSandBox|Pulling|TriggeredScaleUp|Pulled|Created"
"""Events that tell more than the status of a pod that waits; the newest counts."""


def reason_of(pods: Iterable[Mapping[str, Any]], events: Iterable[Mapping[str, Any]]) -> Reason | None:
    """Return why the pods do not run; first what waiting does not heal. None where nothing is known."""
    newest: dict[str, Mapping[str, Any]] = {}
    for event in sorted(events, key=_moment):
        if re.fullmatch(_EVENTS, event.get("reason") or ""):
            newest[event["involvedObject"].get("uid", "")] = event
    present = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    found = [
        reason for pod in present for reason in _of_pod(pod, newest.get(pod["metadata"].get("uid", "?")))
    ]
    return min(found, key=lambda reason: reason.heals, default=None)


def _moment(event: Mapping[str, Any]) -> str:
    times = (event.get("lastTimestamp"), (event.get("series") or {}).get("lastObservedTime"))
    return str(next(filter(None, (*times, event.get("eventTime"))), ""))[: len("2026-01-01T00:00:00")]


def _of_pod(pod: Mapping[str, Any], event: Mapping[str, Any] | None) -> Iterator[Reason]:
    status = pod["status"]
    for part in ("initContainerStatuses", "containerStatuses"):
        for each in status.get(part) or ():
            if (found := _of_container(each)) is not None:
                yield found
    if status.get("phase", "Pending") != "Pending":
        return
    image = pod["spec"]["containers"][0].get("image", "")
    scheduled: Mapping[str, Any] = next(
        (each for each in status.get("conditions") or () if each["type"] == "PodScheduled"), {}
    )
    report = event or {}
    if scheduled.get("status") == "False" and report.get("reason") != "TriggeredScaleUp":
        report = scheduled
    if (found := _row(report.get("reason") or "", report.get("message") or "", image)) is not None:
        yield found


def _of_container(status: Mapping[str, Any]) -> Reason | None:
    state, image = status.get("state") or {}, status.get("image", "")
    waiting, ended = state.get("waiting") or {}, state.get("terminated")
    if waiting.get("reason") == "CrashLoopBackOff":
        last = (status.get("lastState") or {}).get("terminated") or {}
        again = (
            f"its program has ended {status.get('restartCount', 0)} times, last with {last.get('exitCode')}"
        )
        return _of_end(last, image) or Reason("crash-loop", again, "read its lines: trainyard logs")
    if ended:
        return _of_end(ended, image)
    return _row(waiting.get("reason") or "", waiting.get("message") or "", image)


def _of_end(ended: Mapping[str, Any], image: str) -> Reason | None:
    if ended.get("reason") == "OOMKilled":
        step = "ask for more memory in the job's resources, or use less: smaller batches, fewer data workers"
        return Reason(
            "out-of-memory", "out of memory: the kernel ended a program that passed its limit", step
        )
    if (code := ended.get("exitCode")) in _CODES:
        step = "name a program of the image or a file of the code; its lines: trainyard logs"
        text = f"exit code {code}: a program {_CODES[code]}"
        return Reason("program-missing", text, step, heals=False)
    return _row(ended.get("reason") or "", ended.get("message") or "", image)


def _row(reason: str, message: str, image: str) -> Reason | None:
    for reasons, pattern, kind, text, step in _ROWS:
        if re.fullmatch(reasons, reason) and (found := re.search(pattern, message, re.DOTALL)):
            line = re.split(r"\.? (?:preemption:|no new claims)", " ".join(message.split()))[0]
            last = line.rstrip('." ').rpartition(": ")[2] or reason
            given = {"image": image, "text": line, "last": last, "found": found[0], **found.groupdict()}
            return Reason(kind, text.format_map(given), step, heals=not step)
    return None
