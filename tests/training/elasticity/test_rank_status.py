"""A rank's status in shared memory, which its training thread and its heartbeat thread both write."""

import sys
import threading
from collections.abc import Iterator

import pytest

from trainyard_train.elasticity.rank_status import AGENT, RankStatus, RankStatuses


@pytest.fixture
def frequent_thread_switches() -> Iterator[None]:
    """Make threads switch within a call, which else happens once in thousands of calls."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("frequent_thread_switches")
def test_a_saved_step_never_goes_back_while_another_thread_writes_stalls() -> None:
    (status,) = RankStatuses.create(1).ranks
    ended = threading.Event()

    def write_stalls() -> None:
        while not ended.is_set():
            status.stalled = True

    writers = [threading.Thread(target=write_stalls) for _ in range(2)]
    for writer in writers:
        writer.start()
    reverted = []
    for step in range(20_000):
        status.saved_step = step
        if status.saved_step != step:
            reverted.append(step)
    ended.set()
    for writer in writers:
        writer.join()
    assert reverted == []
    assert status.stalled


def test_a_rank_writes_into_its_own_slot() -> None:
    memory = RankStatuses.create(3)
    middle = RankStatus.from_environment({AGENT: memory.environment(1)[AGENT]})
    middle.saved_step, middle.stalled = 2**40, True
    assert [rank.saved_step for rank in memory.ranks] == [0, 2**40, 0]
    assert [rank.stalled for rank in memory.ranks] == [False, True, False]
    middle.stalled = False
    assert (memory.saved_step, middle.stalled) == (2**40, False)
