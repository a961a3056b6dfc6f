"""The fleet: stacks that exist, joined so that one of them sends jobs to the others."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

import catalog
from infra.spec.base import Name, NonNegative, Positive, Spec, matching, one_of

DAY = 24 * 3600

StackReference = Annotated[
    str,
    matching(
        "stack_reference",
        r"[\w.-]+(/[\w.-]+/[\w.-]+)?",
        "the name of a stack of this project, or organization/project/stack",
        "write it as `pulumi stack ls` shows it",
    ),
]
Resource = Annotated[
    str,
    matching(
        "resource",
        r"[a-z0-9.-]+/[A-Za-z0-9._-]+",
        "a resource of accelerators, such as nvidia.com/gpu",
        "write it as the pods ask for it; cpu, memory and fabrics have no quota",
    ),
]
Endpoint = Annotated[
    str,
    matching(
        "endpoint",
        r"https://[^/\s]+",
        "an https URL without a path",
        "write where the hub's pods reach the API server",
    ),
]
CloudName = Annotated[str, one_of(catalog.clouds)]


class PlaceSpec(Spec):
    """Where a cluster's machines stand: a cloud's region, or a country."""

    cloud: Annotated[str, one_of(catalog.clouds)] | None = Field(
        default=None, description="cloud of the region"
    )
    region: str | None = Field(default=None, description="region, as the cloud spells it")
    country: Annotated[str, Field(pattern=r"^[A-Z]{2}$")] | None = Field(
        default=None, description="country of machines that are in no cloud (ISO 3166: DE)"
    )

    @property
    def name(self) -> str:
        """The region, or the country in small letters: what the worker's object is labelled with."""
        return self.region or (self.country or "").lower()

    def within(self, pattern: str) -> bool:
        """Whether a residency pattern holds here; UnknownNameError for one that the catalogue cannot read."""
        if self.cloud and self.region:
            return catalog.matches(self.cloud, self.region, pattern)
        return catalog.country_within(self.country or "", pattern)


class HubSpec(Spec):
    """The cluster that jobs are submitted to."""

    stack: StackReference = Field(description="its stack")
    runtimes: tuple[Name, ...] = Field(
        default=(), description="training runtimes that it has not itself: copied from the workers"
    )


class WorkerSpec(Spec):
    """A cluster that jobs are sent to."""

    name: Name = Field(description="name of the worker, in the hub")
    stack: StackReference = Field(description="its stack")
    place: PlaceSpec = Field(description="where it is: {cloud, region} or {country}")
    endpoint: Endpoint | None = Field(
        default=None, description="its API server as the hub reaches it; default: as its kubeconfig says"
    )


class CredentialsSpec(Spec):
    """The token with which the hub comes to a worker."""

    lifetime_seconds: Annotated[Positive, Field(ge=600)] = Field(
        default=DAY, description="how long a token is asked for; a new one comes at half of its life"
    )
    serial: NonNegative = Field(default=0, description="another number gives every worker a new token")


class DispatchSpec(Spec):
    """A queue of the hub whose jobs run on workers."""

    name: Name = Field(description="name of the queue: what jobs name, in the hub as on the workers")
    teams: tuple[Name, ...] = Field(
        min_length=1, description="teams that may use it; each worker's stack has them too"
    )
    quota: dict[Resource, Positive] = Field(
        min_length=1, description="accelerators to how many the queue's jobs may have on all workers together"
    )
    runtimes: tuple[Name, ...] = Field(min_length=1, description="training runtimes of its jobs")
    residency: tuple[Annotated[str, Field(min_length=1)], ...] | None = Field(
        default=None, min_length=1, description="where its data may be: in:eu, in:de or patterns of regions"
    )
    datasets: tuple[Name, ...] = Field(default=(), description="datasets that each of its workers has")
    workers: tuple[Name, ...] | None = Field(
        default=None, min_length=1, description="default: all where its data may be"
    )

    def may_use(self, worker: WorkerSpec) -> bool:
        """Whether the queue's data may be where the worker is."""
        return self.residency is None or any(worker.place.within(pattern) for pattern in self.residency)


class Fleet(Spec):
    """A hub and its workers, as declared under `trainyard:fleet` of a stack file."""

    schema_version: Literal[1] = Field(alias="schema", description="version of this format")
    name: Name = Field(description="name of the fleet, and of its account on the workers")
    hub: HubSpec = Field(description="the cluster that jobs are submitted to")
    workers: tuple[WorkerSpec, ...] = Field(min_length=1, description="clusters that jobs are sent to")
    credentials: CredentialsSpec = Field(default=CredentialsSpec(), description="tokens for the workers")
    queues: tuple[DispatchSpec, ...] = Field(min_length=1, description="queues whose jobs run on workers")

    def workers_of(self, queue: DispatchSpec) -> list[WorkerSpec]:
        """Return the workers of a queue, in the order of the file."""
        return [
            worker
            for worker in self.workers
            if queue.may_use(worker) and (queue.workers is None or worker.name in queue.workers)
        ]

    def queues_on(self, worker: WorkerSpec) -> list[DispatchSpec]:
        """Return the queues that send jobs to a worker."""
        return [queue for queue in self.queues if worker in self.workers_of(queue)]
