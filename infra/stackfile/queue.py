"""The stack file's `queues` and `teams` sections: quotas per pool, lending and weights of queues; queues,
priorities, groups and limits of teams.
"""

from collections.abc import Iterable, Sequence
from datetime import date
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from infra.common.names import team_namespace
from infra.stackfile.base import (
    Day,
    Gibibytes,
    Integer,
    Name,
    NonNegative,
    Positive,
    Quantity,
    Spec,
    matching,
    wrong,
)

DEFAULT_LOCAL_QUEUE = "default"
"""Kueue's name of a namespace's default local queue (pkg/controller/constants, DefaultLocalQueueName)."""
Group = Annotated[
    str,
    matching(
        "group",
        r"(?!system:)\S+",
        "a group of your identity provider: no spaces, and none of Kubernetes' own (system:…)",
        "name the group as the identity provider does; system:authenticated would be all users",
    ),
]
"""Name of a group of users on the target: an IAM role, a Google Group, a value of the tokens' group claim."""


Weight = Annotated[NonNegative, Field(le=1000)]


class FlavorSpec(Spec):
    """A queue's quota of one pool."""

    DEFAULTED: ClassVar = frozenset({"quota"})

    pool: Name = Field(description="name of a pool with accelerators")
    quota: NonNegative = Field(
        description="nominal quota: accelerators of the pool that the queue may always use; default: those"
        " of the pool that no other queue has"
    )
    borrowing_limit: NonNegative | None = Field(
        default=None,
        description="maximum number of accelerators that the queue borrows from its cohort beyond its quota;"
        " default: no limit",
    )
    lending_limit: NonNegative | None = Field(
        default=None,
        description="maximum number of accelerators of its quota that the queue lends to its cohort;"
        " default: all",
    )

    @property
    def lent(self) -> int:
        """Accelerators that the others of the cohort may use."""
        return self.quota if self.lending_limit is None else self.lending_limit


class QueueSpec(Spec):
    """A cluster queue."""

    name: Name = Field(description="name of the cluster queue")
    cohort: Name | None = Field(
        default=None, description="name of the cohort; queues of a cohort lend each other unused quota"
    )
    weight: Weight | None = Field(
        default=None,
        description="fair-sharing weight for the cohort's unused quota; 0: served last; default: 1, without"
        " fair sharing if no queue has a weight",
    )
    flavors: tuple[FlavorSpec, ...] = Field(
        min_length=1, description="quotas by pool, in order of preference"
    )


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
    """Quotas and limits of a team's namespace, besides the accelerators of its queues."""

    job_pods: Annotated[Positive, Field(le=50_000)] | None = Field(
        default=None,
        description="maximum number of pods of a job; default: 100, or the accelerators of the team's"
        " largest pool if that is more",
    )
    pods: Annotated[Positive, Field(le=100_000)] | None = Field(
        default=None,
        description="maximum number of pods that have not terminated; default: 500, or twice the"
        " accelerators of the team's pools if that is more",
    )
    cpus: Positive | None = Field(
        default=None,
        description="maximum sum of the pods' CPU requests; default: twice the CPUs of the team's pools,"
        " since a terminating pod and its replacement both count",
    )
    memory_gib: Gibibytes | None = Field(
        default=None,
        alias="memory",
        description="maximum sum of the pods' memory requests; default: twice the memory of the team's pools",
    )
    scratch_gib: Gibibytes = Field(
        default=100,
        alias="scratch",
        json_schema_extra={"default": "100Gi"},
        description="ephemeral storage limit of a container (files outside of volumes, logs,"
        " emptyDir); a pod above it is evicted",
    )
    claimed_gib: Annotated[int, Quantity("Gi", 0)] = Field(
        default=1024,
        alias="claimed",
        json_schema_extra={"default": "1Ti"},
        description="maximum total size of the volumes that pods claim, without the platform's",
    )
    jobs: Annotated[Positive, Field(le=50_000)] = Field(
        default=1000,
        description="maximum number of Jobs, including those of JobSets and TrainJobs, until they are"
        " deleted",
    )
    custom_jobs: Annotated[Positive, Field(le=50_000)] | None = Field(
        default=None,
        description="maximum number of TrainJobs, of JobSets, of MPIJobs and of each kind of kubeflow.org/v1,"
        " until they are deleted; default: no limit. Set it after the first up: a limit that is as new as the"
        " kind refuses its jobs for up to 5 minutes",
    )
    secrets: Annotated[Positive, Field(le=5000)] = Field(default=200, description="maximum number of Secrets")
    config_maps: Annotated[Positive, Field(le=5000)] = Field(
        default=1000,
        description="maximum number of ConfigMaps, including those that controllers create for jobs",
    )


class TeamSpec(Spec):
    """A namespace `team-<name>` with a local queue for each of its cluster queues."""

    DEFAULTED: ClassVar = frozenset({"queue"})

    name: Name = Field(description="name of the team and of its local queue")
    queue: Name = Field(description="cluster queue that the team submits to; default: the only queue")
    quota: dict[Name, NonNegative] | None = Field(
        default=None,
        description="accelerators of each pool that are the team's, in a cluster queue of its own: in one"
        " cohort with `queue`, whose other quotas it may borrow; default: none, and the jobs are in `queue`",
    )
    more_queues: tuple[Name, ...] = Field(
        default=(), description="further cluster queues that the team may submit to"
    )
    priorities: tuple[Name, ...] = Field(
        default=(), description="priorities that the team's jobs may have; default: all of the stack's"
    )
    members: tuple[Group, ...] = Field(
        default=(), description="groups that may submit, watch and cancel jobs in the team's namespace"
    )
    viewers: tuple[Group, ...] = Field(
        default=(), description="groups with read access to jobs, pods and logs in the team's namespace"
    )
    limits: TeamLimitsSpec = Field(
        default=TeamLimitsSpec(),
        description="quotas and limits of the team's namespace, besides accelerators",
    )
    owner: str | None = Field(default=None, description="who answers for the team, such as an e-mail address")
    cost_centre: str | None = Field(
        default=None, description="cost centre that the team's costs are charged to"
    )
    expires: Day | None = Field(
        default=None,
        description="last day on which the team's jobs are admitted; from two weeks before on `preview`, `up`"
        " and `status` warn; nothing is deleted",
    )
    closed: Day | None = Field(
        default=None,
        description="day on which the team was closed: its quota is 0 and no job is admitted, those that run"
        " go on",
    )
    namespace: str = Field(
        default="",
        description="`team-NAME` where that namespace exists already: the stack adds labels, limits and"
        " policies, and never deletes it; default: the stack creates it",
    )
    labels: dict[str, str] = Field(
        default_factory=dict, description="further labels of the team's namespace, for other operators"
    )
    annotations: dict[str, str] = Field(
        default_factory=dict, description="further annotations of the team's namespace"
    )

    @model_validator(mode="before")
    @classmethod
    def _weight_is_of_a_queue(cls, data: Any) -> Any:  # noqa: ANN401 -- whatever the user wrote
        """Kueue before 0.18.5 weighs local queues by a usage in which accelerators may count as nothing.

        kubernetes-sigs/kueue#13763. The key is declared to explain where it is.
        """
        if isinstance(data, dict) and "weight" in data:
            allowed = "a weight of a queue (queues[].weight): local queues of one queue are served alike"
            fix = "give the team a separate queue in the same cohort, and set the weight there"
            raise wrong("team_weight", allowed, fix, "weight")
        return data

    @model_validator(mode="after")
    def _namespace_is_called_after_the_team(self) -> "TeamSpec":
        """Members' commands know a namespace by its team, and a team by its namespace."""
        if self.namespace not in {"", own := team_namespace(self.name)}:
            fix = f"write `namespace: {own}`, or leave it out, and the stack creates {own}"
            raise wrong("team_namespace", f"{own}: the namespace of this team", fix, "namespace")
        return self

    def is_held(self, today: date) -> bool:
        """Whether no further job of the team is admitted: it is closed, or its time is over."""
        return self.closed is not None or (self.expires is not None and self.expires < today)

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
"""Value of a priority class; Kubernetes reserves values beyond the limit for system classes."""
