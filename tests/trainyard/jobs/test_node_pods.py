"""The pod of a rank, for commands that take a rank."""

import pytest

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


def test_a_rank_that_does_not_exist_is_reported_with_the_jobs_ranks() -> None:
    cluster = research()
    cluster.running = [pod("digits", 0, "a")]
    with pytest.raises(InputError, match="0 to 1"):
        running_pod(cluster, KEY, 2)


def test_a_rank_whose_pod_is_pending_is_reported() -> None:
    cluster = research()
    cluster.running = [pod("digits", 0, "a", phase="Pending")]
    with pytest.raises(InputError, match="is Pending"):
        running_pod(cluster, KEY, 0)


def test_a_job_without_pods_is_reported() -> None:
    with pytest.raises(InputError, match="no pods now"):
        running_pod(research(), KEY, 0)
