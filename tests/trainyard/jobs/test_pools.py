"""The pools of a queue: what it may borrow from its cohort."""

from typing import Any

import pytest

from tests.trainyard.jobs.lists import cluster_queue
from trainyard.jobs.pools import pools_of


@pytest.mark.parametrize(
    ("limits", "free"), [({}, 10), ({"borrowingLimit": "2"}, 8), ({"borrowingLimit": "0"}, 6)]
)
def test_a_queue_may_borrow_what_its_cohort_has_free(limits: dict[str, Any], free: int) -> None:
    own = cluster_queue(quota=8, used=2, cohort="lab", **limits)
    other = cluster_queue(quota=8, used=4, cohort="lab", name="other")
    stranger = cluster_queue(quota=8, name="stranger", cohort="others")
    [pool] = pools_of("gpu", {"gpu": own, "other": other, "stranger": stranger})
    assert (pool.quota, pool.used, pool.free) == (8, 2, free)


def test_a_pools_quota_is_of_its_accelerator_whatever_others_the_queue_has() -> None:
    """A queue lists each flavor with all its resources, and a quota of 0 for those of other pools."""
    own: Any = cluster_queue()
    resources = [("amd.com/gpu", "16", "4"), ("nvidia.com/gpu", "0", "0")]
    [group] = own["spec"]["resourceGroups"]
    group["flavors"] = [
        {
            "name": "mi300x",
            "resources": [{"name": each, "nominalQuota": quota} for each, quota, _ in resources],
        }
    ]
    usage = [{"name": each, "total": used} for each, _, used in resources]
    own["status"]["flavorsReservation"] = [{"name": "mi300x", "resources": usage}]
    [pool] = pools_of("gpu", {"gpu": own})
    assert (pool.quota, pool.used, pool.free) == (16, 4, 12)
