"""Queues: who may use how many accelerators of which pools, in which order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from pydantic import Field, model_validator

from infra.spec.base import Integer, Name, NonNegative, Positive, Spec, matching, wrong

DEFAULT_LOCAL_QUEUE = "default"
"""Kueue's own name for it (pkg/controller/constants, DefaultLocalQueueName)."""
Group = Annotated[
    str,
    matching(
        "group",
        r"(?!system:)\S+",
        "a group that somebody keeps: no spaces, and none of Kubernetes' own (system:…)",
        "name the group as the identity provider does; system:authenticated would be everybody",
    ),
]
"""A group of people, as the target knows it: an IAM role, a Google Group, a name in the tokens' claim."""


Weight = Annotated[NonNegative, Field(le=1000)]


class FlavorSpec(Spec):
    """A queue's share of one pool."""

    pool: Name = Field(description="name of a pool with accelerators")
    quota: NonNegative = Field(description="accelerators of the pool that this queue may use")
    borrowing_limit: NonNegative | None = Field(
        default=None,
        description="accelerators beyond its quota, of what its cohort has free; default: all of it",
    )
    lending_limit: NonNegative | None = Field(
        default=None,
        description="accelerators of its quota that the others of its cohort may use; default: all",
    )

    @property
    def lent(self) -> int:
        """Accelerators that the others of the cohort may use."""
        return self.quota if self.lending_limit is None else self.lending_limit


class QueueSpec(Spec):
    """A cluster queue; the order of its flavors is the order of preference."""

    name: Name = Field(description="name of the cluster queue")
    cohort: Name | None = Field(default=None, description="queues of one cohort lend to each other")
    weight: Weight | None = Field(
        default=None,
        description="part of what the cohort has free, against the weights of its other queues (fair"
        " sharing); 0: what nobody else wants; default: 1, and no fair sharing where no queue has one",
    )
    flavors: tuple[FlavorSpec, ...] = Field(min_length=1, description="pools, the preferred one first")


def lenders(queue: QueueSpec, queues: Sequence[QueueSpec]) -> list[QueueSpec]:
    """Return the other queues of its cohort."""
    return [each for each in queues if queue.cohort and each is not queue and each.cohort == queue.cohort]


def lent(queues: Iterable[QueueSpec], pool: str) -> int:
    """Return how many accelerators of a pool these queues lend."""
    return sum(flavor.lent for queue in queues for flavor in queue.flavors if flavor.pool == pool)


def most(queue: QueueSpec, flavor: FlavorSpec, queues: Sequence[QueueSpec]) -> int:
    """Return how many accelerators of a flavor its queue has when its cohort wants none."""
    borrowed = lent(lenders(queue, queues), flavor.pool)
    limit = borrowed if flavor.borrowing_limit is None else flavor.borrowing_limit
    return flavor.quota + min(borrowed, limit)


class TeamLimitsSpec(Spec):
    """What the namespace of a team may hold, beside the accelerators that its queues give."""

    job_pods: Annotated[Positive, Field(le=50_000)] | None = Field(
        default=None,
        description="pods (nodes) of one job; default: 100, or the accelerators of the team's largest pool"
        " where there are more",
    )
    pods: Annotated[Positive, Field(le=100_000)] | None = Field(
        default=None,
        description="pods that have not ended; default: 500, or twice the accelerators of the team's pools"
        " where that is more",
    )
    cpus: Positive | None = Field(
        default=None,
        description="processors that all pods ask for; default: twice those of the team's pools, since a pod"
        " that ends and its successor count both",
    )
    memory_gib: Positive | None = Field(
        default=None, description="memory that all pods ask for; default: twice that of the team's pools"
    )
    scratch_gib: Positive = Field(
        default=100,
        description="ephemeral storage of a container (its files outside of volumes, logs, emptyDir): a pod"
        " that takes more is evicted",
    )
    claimed_gib: NonNegative = Field(
        default=1024, description="storage that pods claim (ephemeral volumes), beside the platform's claims"
    )
    jobs: Annotated[Positive, Field(le=50_000)] = Field(
        default=1000, description="Jobs, those of JobSets and TrainJobs among them, until they are deleted"
    )
    secrets: Annotated[Positive, Field(le=5000)] = Field(default=200, description="Secrets")
    config_maps: Annotated[Positive, Field(le=5000)] = Field(
        default=1000, description="ConfigMaps, such as the controllers make for jobs"
    )


class TeamSpec(Spec):
    """A namespace `team-<name>` with a local queue into a cluster queue."""

    name: Name = Field(description="name of the team, and of its local queue")
    queue: Name = Field(description="name of the cluster queue that the team submits to")
    more_queues: tuple[Name, ...] = Field(
        default=(), description="other cluster queues that it may submit to, such as those of other machines"
    )
    priorities: tuple[Name, ...] = Field(
        default=(), description="priorities that the team's jobs may have; empty: all of the stack's"
    )
    members: tuple[Group, ...] = Field(
        default=(), description="groups that submit, watch and cancel jobs in the team's namespace"
    )
    viewers: tuple[Group, ...] = Field(
        default=(), description="groups that look at jobs, pods and logs in the team's namespace"
    )
    limits: TeamLimitsSpec = Field(
        default=TeamLimitsSpec(), description="what the team's namespace may hold, beside its accelerators"
    )

    @model_validator(mode="before")
    @classmethod
    def _weight_is_of_a_queue(cls, data: Any) -> Any:  # noqa: ANN401 -- whatever the user wrote
        """Kueue before 0.18.5 weighs local queues by a usage in which accelerators may count as nothing.

        kubernetes-sigs/kueue#13763. Whoever looks for the key finds out where it is.
        """
        if isinstance(data, dict) and "weight" in data:
            allowed = "a weight of a queue (queues[].weight): local queues of one queue are served alike"
            fix = "give the team a queue for itself in the same cohort, and that queue the weight"
            raise wrong("team_weight", allowed, fix, "weight")
        return data

    @property
    def queues(self) -> tuple[str, ...]:
        """All of them, the first one first."""
        return (self.queue, *self.more_queues)

    def local_queue(self, queue: str = "") -> str:
        """Name of the local queue into one of them: the team's own for the first."""
        return self.name if queue in {"", self.queue} else f"{self.name}-{queue}"

    @property
    def local_queues(self) -> dict[str, str]:
        """Local queue → its cluster queue. Kueue puts a job without a label into `default`."""
        named = {self.local_queue(queue): queue for queue in self.queues}
        return {DEFAULT_LOCAL_QUEUE: self.queue, **named}

    @property
    def groups(self) -> tuple[str, ...]:
        """All groups of the team, each once."""
        return tuple(dict.fromkeys((*self.members, *self.viewers)))


PriorityValue = Annotated[Integer, Field(ge=-(10**9), le=10**9)]
"""Kubernetes reserves what lies beyond for system classes."""
