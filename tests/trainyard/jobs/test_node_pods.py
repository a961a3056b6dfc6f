"""The pod of a rank, for commands that take a rank."""

import pytest

from infra.clients.kubernetes import Object
from infra.errors import InputError
from tests.trainyard.jobs.lists import pod, research
from trainyard.jobs.key import JobKey
from trainyard.jobs.node_pods import pods_of, running_pod

KEY = JobKey("research", "digits")


def test_ranks_are_counted_over_the_nodes() -> None:
    cluster = research()
    cluster.running = [pod("digits", 1, "b"), pod("digits", 0, "a"), pod("other", 0, "c")]
    assert [(each.number, each.node, each.first_rank) for each in pods_of(cluster, KEY)] == [
        (0, "a", 0),
        (1, "b", 2),
    ]
    assert [running_pod(cluster, KEY, rank).node for rank in range(4)] == ["a", "a", "b", "b"]


@pytest.mark.parametrize(
    ("pods", "rank", "message"),
    [
        ([pod("digits", 0, "a")], 2, "0 to 1"),
        ([pod("digits", 0, "a", phase="Pending")], 0, "is Pending"),
        ([], 0, "no pods now"),
    ],
    ids=["a rank that the job does not have", "a pending pod", "a job without pods"],
)
def test_a_rank_without_a_running_pod_is_reported(pods: list[Object], rank: int, message: str) -> None:
    cluster = research()
    cluster.running = pods
    with pytest.raises(InputError, match=message):
        running_pod(cluster, KEY, rank)
