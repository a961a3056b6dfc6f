"""`trainyard job traces`: prints the stack of each thread of each rank of a running job."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from infra.clients.kubernetes import ApiError, NoAnswer
from infra.errors import InputError, Problem, TrainyardError
from infra.platform.programs import program
from trainyard.jobs.cluster import MemberCluster, key_of
from trainyard.jobs.key import JobKey
from trainyard.jobs.node_pods import NodePod, pods_of
from trainyard.stack.remote import Remote
from trainyard.stack.session import Session

AT_ONCE = 16
"""Number of pods that are asked in parallel."""


def show_traces(session: Session, name: str) -> None:
    """Print the stacks of all ranks, node by node.

    Raises:
        InputError: there is no such job, or none of its pods runs.
    """
    key = key_of(session, name)
    found = dict(stacks_of(session, key))
    if not found:
        fix = "see `trainyard jobs`; what was written before it ended: `trainyard job bundle`"
        raise InputError([Problem(f"job {key.name}", "no pod runs", "a job that runs", fix)])
    for pod, text in found.items():
        session.console.print(f"── node {pod.number}, {pod.name} on {pod.node}", highlight=False)
        session.console.file.write(text + "\n")


def stacks_of(session: Session, key: JobKey) -> Iterator[tuple[NodePod, str]]:
    """Yield each running pod of a job with the stacks of its ranks, or with why there are none."""
    remote = Remote(session.api)
    running = [pod for pod in pods_of(MemberCluster(session), key) if pod.is_running]

    def asked(pod: NodePod) -> str:
        try:
            ended = remote.run(pod, ["python3", "-c", program("print_stacks.py")])
        except (ApiError, NoAnswer):
            raise
        except TrainyardError as error:  # this pod alone cannot be entered
            return str(error)
        return ended.output if ended.code == 0 else f"exit code {ended.code}: {ended.errors}"

    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from zip(running, pool.map(asked, running), strict=True)
