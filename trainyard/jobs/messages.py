"""Writes Kueue's messages about a Workload in the words of this project.

The patterns are those of Kueue 0.18.4 (pkg/scheduler, pkg/cache/scheduler, pkg/controller/core). A message
without a row is shown as it is.
"""

import re
from collections.abc import Callable

_Words = str | Callable[[re.Match[str]], str]
_GPU = r"(?:nvidia\.com/gpu|amd\.com/gpu|google\.com/tpu)"

ROWS: tuple[tuple[str, _Words], ...] = (
    (r"couldn't assign flavors to pod set [\w-]+: ", ""),
    (rf"insufficient unused quota for {_GPU} in flavor (\S+), (\d+) more needed", r"\1 lacks \2 free GPUs"),
    (r"insufficient unused quota for (\S+) in flavor (\S+), (\S+) more needed", r"\2 lacks \3 of \1"),
    (
        rf"insufficient quota for {_GPU} in flavor (\S+), previously considered podsets requests \((\d+)\) \+"
        r" current podset request \((\d+)\) > maximum capacity \((\d+)\)",
        lambda found: (
            f"{found[1]} never has {int(found[2]) + int(found[3])} GPUs for this queue, {found[4]} at most"
        ),
    ),
    (r"untolerated taint \{(\S+) .*?\} in flavor (\S+)", r"\2 takes no pods without a toleration of \1"),
    (r"flavor (\S+) doesn't match node affinity", r"\1 is not a pool that the job accepts"),
    (
        r"topology \"\S+\" allows to fit only (\d+) out of (\d+) (?:pod|slice)\(s\)",
        r"nodes near each other have room for \1 of \2 pods",
    ),
    (
        r"topology \"\S+\" doesn't allow to fit any of (\d+) (?:pod|slice)\(s\)",
        r"no node has room for one of the \1 pods",
    ),
    (r"Workload no longer fits after processing another workload", "another job took the place"),
    (r"\. Pending the preemption of (\d+) workload\(s\)", r"; waits for \1 preempted jobs to end"),
    (r"; Flavors considered: .*", ""),
    (r"The workload is deactivated", "paused: `trainyard resume` queues it again"),
    (r"LocalQueue (\S+) doesn't exist", r"there is no queue \1 in the team's namespace"),
    (r"ClusterQueue (\S+) doesn't exist", r"there is no queue \1"),
    (
        r"(?:Local|Cluster)Queue (\S+) is (?:inactive|stopped)",
        r"queue \1 admits no jobs: its owner stopped it",
    ),
    (
        r"Exceeded the PodsReady timeout (\S+)",
        r"its pods were not all ready in time, and it was queued again",
    ),
    (
        r"Preempted to accommodate a workload \(UID: \S+, JobUID: \S+\) due to (.*?); preemptor path: .*",
        r"preempted for another job: \1",
    ),
    (
        r"Waiting for all admitted workloads to be in the PodsReady condition",
        "waits until an admitted job runs",
    ),
    (r"Waiting for backoff to finish", "waits before the next try"),
)
"""Pattern of a part of Kueue's message → our words."""


def in_our_words(message: str) -> str:
    """Return a message of Kueue's in our words, several parts included."""
    for pattern, words in ROWS:
        message = re.sub(pattern, words, message)
    return message
