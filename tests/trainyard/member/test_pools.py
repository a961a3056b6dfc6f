"""The pools of a queue: what it may borrow from its cohort."""

from __future__ import annotations

from typing import Any

import pytest

from tests.trainyard.member.lists import cluster_queue
from trainyard.member.pools import pools_of


@pytest.mark.parametrize(
    ("limits", "free"), [({}, 10), ({"borrowingLimit": "2"}, 8), ({"borrowingLimit": "0"}, 6)]
)
def test_a_queue_may_borrow_what_its_cohort_has_free(limits: dict[str, Any], free: int) -> None:
    own = cluster_queue(quota=8, used=2, cohort="lab", **limits)
    other = cluster_queue(quota=8, used=4, cohort="lab", name="other")
    stranger = cluster_queue(quota=8, name="stranger", cohort="others")
    [pool] = pools_of("gpu", {"gpu": own, "other": other, "stranger": stranger})
    assert (pool.quota, pool.used, pool.free) == (8, 2, free)
