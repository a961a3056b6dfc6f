"""Checks between the sections of a fleet file: names, locations, residency, workers of queues, runtimes."""

from collections.abc import Iterator

import catalog
from infra.stackfile.finding import Checks, Finding, unknown
from infra.stackfile.fleet import DispatchSpec, LocationSpec, ManagerSpec, WorkerSpec

Workers = tuple[WorkerSpec, ...]
Queues = tuple[DispatchSpec, ...]


def workers_and_queues_have_unique_names(workers: Workers, queues: Queues) -> Iterator[Finding]:
    """Workers and queues both become objects of the manager."""
    sections = {"workers": [worker.name for worker in workers], "queues": [queue.name for queue in queues]}
    for section, names in sections.items():
        for index, name in enumerate(names):
            if name in names[:index]:
                allowed = f"a name that is unique among the {section}"
                yield (section, index, "name"), repr(name), allowed, "rename or remove one of them"


def no_worker_is_named_hub(workers: Workers) -> Iterator[Finding]:
    """The manager's own resources have this prefix, and resource names are unique in a stack."""
    for index, worker in enumerate(workers):
        if worker.name == "hub":
            allowed = "a name other than hub, which is reserved"
            fix = "name it after its location or stack"
            yield ("workers", index, "name"), repr(worker.name), allowed, fix


def a_stack_has_one_part(manager: ManagerSpec, workers: Workers) -> Iterator[Finding]:
    """Kueue sends no job to itself, and a worker that exists twice would be asked twice."""
    seen = {manager.stack: "the manager"}
    for index, worker in enumerate(workers):
        if worker.stack in seen:
            got = f"{worker.stack!r}, which is {seen[worker.stack]}"
            allowed = "a different stack for each cluster of the fleet"
            yield ("workers", index, "stack"), got, allowed, "remove one of the two"
        seen.setdefault(worker.stack, f"worker {worker.name}")


def workers_are_somewhere(workers: Workers) -> Iterator[Finding]:
    """A region of its cloud, or a country: never both, never neither."""
    for index, worker in enumerate(workers):
        location, path = worker.place, ("workers", index, "place")
        if bool(location.cloud) != bool(location.region) or bool(location.country) == bool(location.region):
            got = ", ".join(
                f"{key}: {value}" for key, value in location.model_dump(exclude_none=True).items()
            )
            fix = "give the location in one of the two forms"
            yield path, got or "nothing", "{cloud, region} or {country}", fix
        elif location.cloud:
            regions = [region.name for region in catalog.regions(location.cloud)]
            if location.region not in regions:
                yield unknown(
                    (*path, "region"), str(location.region), regions, f"a region of {location.cloud}"
                )


def residency_can_be_read(queues: Queues) -> Iterator[Finding]:
    """A pattern that matches no region would permit none, without a message."""
    for index, queue in enumerate(queues):
        for position, pattern in enumerate(queue.residency or ()):
            try:
                catalog.is_country_within("", pattern)
            except catalog.UnknownNameError as error:
                path = ("queues", index, "residency", position)
                yield path, repr(pattern), error.allowed, error.fix


def queues_name_workers(workers: Workers, queues: Queues) -> Iterator[Finding]:
    """The workers of a queue are workers of the fleet."""
    known = [worker.name for worker in workers]
    for index, queue in enumerate(queues):
        for position, name in enumerate(queue.workers or ()):
            if name not in known:
                yield unknown(("queues", index, "workers", position), name, known, "a worker of this fleet")


def jobs_go_where_their_data_may_be(workers: Workers, queues: Queues) -> Iterator[Finding]:
    """A job brings its data, or finds a copy: the worker must be in a region that the queue permits."""
    if not all(_is_known(worker.place) for worker in workers):
        return
    by_name = {worker.name: worker for worker in workers}
    for index, queue in enumerate(queues):
        if queue.residency is None or not all(_can_be_read(pattern) for pattern in queue.residency):
            continue
        allowed = ", ".join(queue.residency)
        for position, name in enumerate(queue.workers or ()):
            if name in by_name and not queue.may_use(by_name[name]):
                got = f"{name!r}, which is in {by_name[name].place.name}"
                fix = "remove the worker from this queue, or use an existing one"
                yield ("queues", index, "workers", position), got, allowed, fix
        if queue.workers is None and not any(queue.may_use(worker) for worker in workers):
            got = ", ".join(f"{worker.name} in {worker.place.name}" for worker in workers)
            yield ("queues", index, "residency"), got, allowed, "add an existing worker"


def the_manager_has_what_jobs_use(manager: ManagerSpec, queues: Queues) -> Iterator[Finding]:
    """A runtime is copied from a worker of the queue that uses it."""
    used = sorted({runtime for queue in queues for runtime in queue.runtimes})
    for index, runtime in enumerate(manager.runtimes):
        if runtime not in used:
            yield unknown(("manager", "runtimes", index), runtime, used, "a runtime of the queues' jobs")


CHECKS = Checks(__name__)


def _is_known(location: LocationSpec) -> bool:
    if location.cloud and location.region:
        return location.region in {region.name for region in catalog.regions(location.cloud)}
    return bool(location.country) and not location.region


def _can_be_read(pattern: str) -> bool:
    try:
        catalog.is_country_within("", pattern)
    except catalog.UnknownNameError:
        return False
    return True
