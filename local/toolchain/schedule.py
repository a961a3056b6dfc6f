"""Makes artifacts in parallel: each after those that it needs, and one at a time of each kind of work
(`Lane`). The first failure ends all work.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from graphlib import TopologicalSorter

from local.toolchain.artifact import Artifact, Lane
from local.toolchain.process import ProcessRunner


def run_all(
    needs: Mapping[Artifact, set[Artifact]], make: Callable[[Artifact], None], runner: ProcessRunner
) -> None:
    """Make every artifact after those that it needs; the first failure ends all the work and is raised."""
    order = TopologicalSorter(needs)
    order.prepare()
    waiting: list[Artifact] = []
    running: dict[Future[None], Artifact] = {}
    with ThreadPoolExecutor(len(Lane)) as pool, runner:
        while order.is_active():
            waiting.extend(order.get_ready())
            for artifact in [*waiting]:
                if artifact.lane not in {other.lane for other in running.values()}:
                    waiting.remove(artifact)
                    running[pool.submit(make, artifact)] = artifact
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                future.result()
                order.done(running.pop(future))
