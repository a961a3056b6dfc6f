"""Reads the outputs of the fleet's stacks, and checks them against the fleet's file. If they differ, the
program ends with a list of all differences, before it uses a kubeconfig.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from infra import team_queues
from infra.common import names
from infra.errors import Problem
from infra.stackfile.finding import Finding, unknown
from infra.stackfile.fleet import DispatchSpec, Fleet
from infra.stackfile.source import KeyPath, show

_FACTS = ("place", "queues", "datasets", "runtimes")
Facts = Mapping[str, Any]
"""Outputs of a stack by name; None for an output that the stack lacks."""


@dataclass(frozen=True)
class StackOutputs:
    """One stack of the fleet."""

    kubeconfig: pulumi.Output[str]
    """Kubeconfig of the cluster: secret, and known once all stacks match the fleet."""
    facts: pulumi.Output[Facts]


class Stacks:
    """The manager's stack and the workers', by reference. A preview refuses what does not fit."""

    def __init__(self, fleet: Fleet, parent: pulumi.Resource) -> None:
        options = pulumi.ResourceOptions(parent=parent)
        parts = [fleet.manager.stack, *(worker.stack for worker in fleet.workers)]
        references = [pulumi.StackReference(part, stack_name=part, opts=options) for part in parts]
        facts = [_facts(each) for each in references]

        def checked(outputs: Sequence[Facts]) -> bool:
            workers = {worker.name: each for worker, each in zip(fleet.workers, outputs[1:], strict=True)}
            found = [Problem(show(path), *rest) for path, *rest in faults(fleet, outputs[0], workers)]
            if found:
                # The one error of the SDK that is shown without a traceback.
                raise pulumi.RunError("\n".join(str(problem) for problem in found))
            return True

        fits = pulumi.Output.all(*facts).apply(checked)
        outputs = [
            StackOutputs(_once(fits, each.get_output("kubeconfig")), known)
            for each, known in zip(references, facts, strict=True)
        ]
        self.manager = outputs[0]
        self.workers = {worker.name: each for worker, each in zip(fleet.workers, outputs[1:], strict=True)}


def _once(fits: pulumi.Output[bool], kubeconfig: pulumi.Output[Any]) -> pulumi.Output[str]:
    found: pulumi.Output[str] = pulumi.Output.all(kubeconfig, fits).apply(lambda both: str(both[0]))
    return found


def _facts(reference: pulumi.StackReference) -> pulumi.Output[Facts]:
    found: pulumi.Output[Facts] = pulumi.Output.all(**{name: reference.get_output(name) for name in _FACTS})
    return found.apply(lambda facts: {**facts, "queues": team_queues.read(facts["queues"])})


def faults(fleet: Fleet, manager: Facts, workers: Mapping[str, Facts]) -> Iterator[Finding]:
    """Yield each difference between the stacks and the fleet's file."""
    absent = list(_absent(fleet, manager, workers))
    if absent:
        yield from absent
        return
    for index, worker in enumerate(fleet.workers):
        place = workers[worker.name]["place"] or ""
        if place and place.lower() != worker.place.name.lower():
            fix = "write the stack's location, or use another stack"
            yield ("workers", index, "place"), worker.place.name, f"{place}, the stack's location", fix
    for index, runtime in enumerate(fleet.manager.runtimes):
        if _has_runtime(manager, runtime):
            allowed = "a runtime that the manager's stack lacks"
            yield (
                ("manager", "runtimes", index),
                repr(runtime),
                allowed,
                "remove it: jobs use the manager's runtime",
            )
    for index, queue in enumerate(fleet.queues):
        for path, got, allowed, fix in _faults_of(fleet, queue, manager, workers):
            yield ("queues", index, *path), got, allowed, fix


def _absent(fleet: Fleet, manager: Facts, workers: Mapping[str, Facts]) -> Iterator[Finding]:
    parts: list[tuple[KeyPath, str, Facts]] = [(("manager", "stack"), fleet.manager.stack, manager)]
    parts += [(("workers", i, "stack"), w.stack, workers[w.name]) for i, w in enumerate(fleet.workers)]
    for path, stack, facts in parts:
        missing = next((name for name in ("queues", "place") if facts[name] is None), "")
        if missing:
            allowed = "a stack whose last `up` was by this release"
            yield path, f"{stack!r}, which has no output {missing}", allowed, f"trainyard up -s {stack}"


def _faults_of(
    fleet: Fleet, queue: DispatchSpec, manager: Facts, workers: Mapping[str, Facts]
) -> Iterator[Finding]:
    used = {worker.name: workers[worker.name] for worker in fleet.workers_of(queue)}
    for position, team in enumerate(queue.teams):
        for name, facts in (("the manager", manager), *used.items()):
            if team not in facts["queues"]:
                yield unknown(("teams", position), team, facts["queues"], f"a team of {name}'s stack")
    for name, facts in (("the manager", manager), *used.items()):
        if queue.name in _taken(facts, includes_cluster_queues=facts is manager):
            allowed = f"a name that no queue of {name} has"
            yield ("name",), repr(queue.name), allowed, "rename the fleet's queue"
    for position, runtime in enumerate(queue.runtimes):
        lacking = [name for name, facts in used.items() if not _has_runtime(facts, runtime)]
        if not _has_runtime(manager, runtime) and runtime not in fleet.manager.runtimes:
            fix = "name it under manager.runtimes: the manager gets a copy"
            yield ("runtimes", position), repr(runtime), "a runtime that the manager has", fix
        if lacking:
            fix = "leave these workers out of the queue, or use a runtime that all of them have"
            got = f"{runtime!r}, not on {', '.join(lacking)}"
            yield ("runtimes", position), got, "a runtime of all its workers", fix
    for position, dataset in enumerate(queue.datasets):
        for name, facts in used.items():
            if dataset not in (facts["datasets"] or {}):
                known = facts["datasets"] or {}
                yield unknown(("datasets", position), dataset, known, f"a dataset of {name}'s stack")


def _taken(facts: Facts, *, includes_cluster_queues: bool) -> set[str]:
    """Return the local queues of a stack, and its cluster queues where a new one would be beside them."""
    local = {each["localQueue"] for each in facts["queues"].values()}
    more = {name for each in facts["queues"].values() for name in each.get("moreLocalQueues", {}).values()}
    return (
        local
        | more
        | ({each["clusterQueue"] for each in facts["queues"].values()} if includes_cluster_queues else set())
    )


def _has_runtime(facts: Facts, runtime: str) -> bool:
    """Whether a stack has a runtime; the one of any fabric is satisfied by the first of its framework."""
    framework, _, fabric = runtime.partition("-")
    own = facts["runtimes"] or ()
    if fabric == names.ANY_FABRIC:
        return any(each.partition("-")[0] == framework for each in own)
    return runtime in own
