"""Queues: who may use how many accelerators of which pools, in which order."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from infra.spec.base import Integer, Name, NonNegative, Spec, matching

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


class FlavorSpec(Spec):
    """A queue's share of one pool."""

    pool: Name = Field(description="name of a pool with accelerators")
    quota: NonNegative = Field(description="accelerators of the pool that this queue may use")


class QueueSpec(Spec):
    """A cluster queue; the order of its flavors is the order of preference."""

    name: Name = Field(description="name of the cluster queue")
    cohort: Name | None = Field(default=None, description="queues of one cohort lend to each other")
    flavors: tuple[FlavorSpec, ...] = Field(min_length=1, description="pools, the preferred one first")


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
