"""Kueue's messages in our words: each row by a message of Kueue 0.18.4, and what has no row as it is."""

import re

import pytest

from trainyard.jobs.messages import ROWS, in_our_words

NO_QUOTA = "couldn't assign flavors to pod set node: insufficient unused quota for nvidia.com/gpu in flavor"
SAID = {
    f"{NO_QUOTA} spot, 2 more needed": "spot lacks 2 free GPUs",
    f"{NO_QUOTA} spot, 2 more needed, insufficient unused quota for nvidia.com/gpu in flavor on-demand,"
    " 1 more needed": "spot lacks 2 free GPUs, on-demand lacks 1 free GPUs",
    "couldn't assign flavors to pod set node: insufficient unused quota for memory in flavor cpu, 2Gi more"
    " needed": "cpu lacks 2Gi of memory",
    "couldn't assign flavors to pod set node: insufficient quota for nvidia.com/gpu in flavor spot,"
    " previously considered podsets requests (0) + current podset request (32) > maximum capacity (16)": (
        "spot never has 32 GPUs for this queue, 16 at most"
    ),
    "couldn't assign flavors to pod set node: untolerated taint {trainyard.dev/spot true NoSchedule <nil>} in"
    " flavor spot": "spot takes no pods without a toleration of trainyard.dev/spot",
    "couldn't assign flavors to pod set node: flavor spot doesn't match node affinity": (
        "spot is not a pool that the job accepts"
    ),
    'couldn\'t assign flavors to pod set node: topology "fabric" allows to fit only 1 out of 2 pod(s)': (
        "nodes near each other have room for 1 of 2 pods"
    ),
    'topology "fabric" doesn\'t allow to fit any of 4 pod(s)': "no node has room for one of the 4 pods",
    "Workload no longer fits after processing another workload": "another job took the place",
    f"{NO_QUOTA} spot, 2 more needed. Pending the preemption of 1 workload(s)": (
        "spot lacks 2 free GPUs; waits for 1 preempted jobs to end"
    ),
    f"{NO_QUOTA} spot, 2 more needed; Flavors considered: spot(NoFit)": "spot lacks 2 free GPUs",
    "The workload is deactivated": "paused: `trainyard resume` queues it again",
    "LocalQueue gpus doesn't exist": "there is no queue gpus in the team's namespace",
    "ClusterQueue gpu doesn't exist": "there is no queue gpu",
    "ClusterQueue gpu is inactive": "queue gpu admits no jobs: its owner stopped it",
    "LocalQueue research is stopped": "queue research admits no jobs: its owner stopped it",
    "Exceeded the PodsReady timeout team-research/digits": (
        "its pods were not all ready in time, and it was queued again"
    ),
    "Preempted to accommodate a workload (UID: a1, JobUID: b2) due to prioritization in the ClusterQueue;"
    " preemptor path: /gpu; preemptee path: /gpu": (
        "preempted for another job: prioritization in the ClusterQueue"
    ),
    "Waiting for all admitted workloads to be in the PodsReady condition": "waits until an admitted job runs",
    "Waiting for backoff to finish": "waits before the next try",
}


@pytest.mark.parametrize(("message", "shown"), SAID.items())
def test_a_message_of_the_queue_is_shown_in_our_words(message: str, shown: str) -> None:
    assert in_our_words(message) == shown


def test_each_row_has_a_message_and_the_table_stays_small() -> None:
    unused = [pattern for pattern, _ in ROWS if not any(re.search(pattern, message) for message in SAID)]
    assert not unused and len(ROWS) <= 25


def test_an_unknown_message_is_shown_as_it_is() -> None:
    assert in_our_words("resource claims are not ready") == "resource claims are not ready"
