"""Preempts spot nodes of the embedded cluster, as a cloud does, by command or on a job's schedule, and
restores them.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trainyard.stack.session import Session

if TYPE_CHECKING:
    from local.cluster.cluster import EmbeddedCluster
    from local.cluster.preemption import PreemptionRecord


def take_node(session: Session, node: str, notice_seconds: float | None) -> None:
    """Preempt one node, and print the phases with their times."""
    record = session.cluster.preempt(node, notice_seconds=notice_seconds)
    _report(session, record)


def give_node_back(session: Session, node: str) -> None:
    """Bring a preempted node back."""
    session.cluster.restore(node)
    session.console.print(f"[green]✓[/] {node} is Ready again", highlight=False)


class SpotReclaimer:
    """Preempts nodes of a running job in the background, and restores all of them at the end."""

    def __init__(self, cluster: "EmbeddedCluster", executor: ThreadPoolExecutor) -> None:
        self._cluster = cluster
        self._executor = executor
        self._losses: list[Future[PreemptionRecord]] = []

    def take(self, nodes: Sequence[str], notice_seconds: float) -> None:
        """Preempt the last of these nodes; 0 seconds: without a notice."""
        self._losses.append(
            self._executor.submit(self._cluster.preempt, nodes[-1], notice_seconds=notice_seconds or None)
        )

    def give_back(self) -> None:
        """Wait for preemptions that are under way, then bring every preempted node back.

        Raises:
            TrainyardError: a loss did not go as it should have.
        """
        for loss in self._losses:
            self._cluster.restore(loss.result().node)


@contextmanager
def cloud(cluster: "EmbeddedCluster") -> Iterator[SpotReclaimer]:
    """Yield a reclaimer; all nodes are restored however the block ends."""
    with ThreadPoolExecutor(max_workers=4, thread_name_prefix="cloud") as executor:
        taker = SpotReclaimer(cluster, executor)
        try:
            yield taker
        finally:
            taker.give_back()


def _report(session: Session, record: "PreemptionRecord") -> None:
    first = record.events[0].time
    for event in record.events:
        session.console.print(f"  {event.time - first:6.1f} s  {event.phase}", highlight=False)
    session.console.print(
        f"{record.node} is terminated; bring it back with `trainyard local preempt {record.node} --return`",
        highlight=False,
    )
