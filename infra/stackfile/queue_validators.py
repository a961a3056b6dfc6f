"""Checks of queues (quotas, borrowing and lending limits, weights), and of teams' limits and priorities."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from infra.stackfile.finding import Checks, Finding, unknown
from infra.stackfile.node_pool import NodePoolSpec
from infra.stackfile.operators import OperatorsSpec
from infra.stackfile.queue import FlavorSpec, QueueSpec, TeamSpec, lenders, lent, most
from infra.stackfile.source import KeyPath

_UNNAMED = 0
"""Priority that Kueue gives a job without a priority class."""
Pools = tuple[NodePoolSpec, ...]
Queues = tuple[QueueSpec, ...]
Teams = tuple[TeamSpec, ...]


def limits_are_of_queues_that_share(queues: Queues) -> Iterator[Finding]:
    """Kueue refuses a limit of a queue without a cohort, and nothing would act on it in a cohort of one."""
    for path, queue, flavor in _flavors(queues):
        for key in ("borrowing_limit", "lending_limit"):
            value = getattr(flavor, key)
            if value is not None and not lenders(queue, queues):
                yield (*path, key), str(value), *_nobody_shares(queue)


def no_more_is_lent_than_there_is(queues: Queues) -> Iterator[Finding]:
    """Kueue also refuses more, but only once the cluster is up."""
    for path, _, flavor in _flavors(queues):
        if flavor.lending_limit is not None and flavor.lending_limit > flavor.quota:
            allowed = f"{flavor.quota} at most: the quota of {flavor.pool!r} in this queue"
            yield (*path, "lending_limit"), str(flavor.lending_limit), allowed, "lower it, or raise the quota"


def no_more_is_borrowed_than_others_lend(queues: Queues) -> Iterator[Finding]:
    """A limit that can never be reached would be read as a guarantee."""
    for path, queue, flavor in _flavors(queues):
        others = lenders(queue, queues)
        found = lent(others, flavor.pool)
        if flavor.borrowing_limit is not None and others and flavor.borrowing_limit > found:
            allowed = f"{found} at most: what the others of cohort {queue.cohort!r} lend of {flavor.pool!r}"
            fix = "lower it, or leave it out: what the others lend is the limit then"
            yield (*path, "borrowing_limit"), str(flavor.borrowing_limit), allowed, fix


def weights_are_of_queues_that_share(queues: Queues) -> Iterator[Finding]:
    """A weight is part of what queues of a cohort have free between them."""
    for index, queue in enumerate(queues):
        if queue.weight is not None and not lenders(queue, queues):
            yield ("queues", index, "weight"), str(queue.weight), *_nobody_shares(queue)


def a_cohort_has_a_weight_above_zero(queues: Queues) -> Iterator[Finding]:
    """If all queues have weight 0, all come last and none comes first."""
    cohorts: Mapping[str, list[int]] = defaultdict(list)
    for index, queue in enumerate(queues):
        if queue.cohort:
            cohorts[queue.cohort].append(index)
    for members in cohorts.values():
        if len(members) > 1 and all(queues[index].weight == 0 for index in members):
            path: KeyPath = ("queues", members[0], "weight")
            allowed = "a weight above 0 for at least one queue of the cohort"
            yield path, "0, as all others of the cohort have", allowed, "raise it to 1 or more"


def weights_act_where_kueue_is_installed(queues: Queues, operators: OperatorsSpec) -> Iterator[Finding]:
    """Fair sharing is a part of Kueue's own configuration."""
    for index, queue in enumerate(queues):
        if queue.weight is not None and operators.kueue != "install":
            allowed = f"nothing, with kueue: {operators.kueue}"
            fix = "leave it out, and set fairSharing in the configuration of the existing Kueue"
            yield ("queues", index, "weight"), str(queue.weight), allowed, fix


def a_quota_can_be_used(queues: Queues) -> Iterator[Finding]:
    """A queue without quota depends on borrowing; one that may not borrow either admits no job."""
    for index, queue in enumerate(queues):
        if not any(most(queue, flavor, queues) for flavor in queue.flavors):
            allowed = "a quota above 0, or a cohort that lends to it"
            fix = "raise a quota, or let another queue of its cohort lend"
            yield ("queues", index, "flavors"), "only quotas of 0", allowed, fix


def a_teams_pods_hold_a_job(teams: Teams) -> Iterator[Finding]:
    """An admitted job whose pods are refused would never start."""
    for index, team in enumerate(teams):
        limits = team.limits
        if limits.pods is not None and limits.job_pods is not None and limits.pods < limits.job_pods:
            allowed = f"{limits.job_pods} or more: the pods that one job may have (job_pods)"
            yield ("teams", index, "limits", "pods"), str(limits.pods), allowed, "raise it, or lower job_pods"


def priorities_of_teams_exist(teams: Teams, priorities: Mapping[str, int]) -> Iterator[Finding]:
    """A team's priorities are the stack's, each is listed once, and one is no less than a job without has."""
    for index, team in enumerate(teams):
        for position, name in enumerate(team.priorities):
            path: KeyPath = ("teams", index, "priorities", position)
            if name not in priorities:
                yield unknown(path, name, priorities, "a priority of this stack")
            elif name in team.priorities[:position]:
                yield path, repr(name), "each priority once", "remove one of the two"
        values = [priorities[name] for name in team.priorities if name in priorities]
        if values and max(values) < _UNNAMED:
            allowed = f"{_UNNAMED} or more for one of them: a job that names no priority has {_UNNAMED}"
            fix = "raise its value under priorities"
            yield ("teams", index, "priorities"), f"{max(values)} at most", allowed, fix


CHECKS = Checks(__name__)


def _flavors(queues: Queues) -> Iterator[tuple[KeyPath, QueueSpec, FlavorSpec]]:
    for index, queue in enumerate(queues):
        for position, flavor in enumerate(queue.flavors):
            yield ("queues", index, "flavors", position), queue, flavor


def _nobody_shares(queue: QueueSpec) -> tuple[str, str]:
    if queue.cohort is None:
        return "nothing, in a queue without a cohort", "leave it out, or name a cohort"
    return (
        f"nothing: no other queue is of cohort {queue.cohort!r}",
        "leave it out, or add a queue to the cohort",
    )
