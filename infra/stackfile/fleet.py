"""The model of a fleet file: a manager, its workers, credentials, queues and dispatch."""

from typing import Annotated, Literal

from pydantic import Field

import catalog
from infra.stackfile.base import Name, NonNegative, Positive, Quantity, Spec, matching, one_of

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
        "write it as pods request it; cpu, memory and fabrics have no quota",
    ),
]
Endpoint = Annotated[
    str,
    matching(
        "endpoint",
        r"https://[^/\s]+",
        "an https URL without a path",
        "write the URL at which the manager's pods reach the API server",
    ),
]


class LocationSpec(Spec):
    """Location of a cluster's nodes: a cloud region or a country."""

    cloud: Annotated[str, one_of(catalog.clouds)] | None = Field(
        default=None, description="cloud of the region"
    )
    region: str | None = Field(default=None, description="name of the region in that cloud")
    country: Annotated[str, Field(pattern=r"^[A-Z]{2}$")] | None = Field(
        default=None, description="country of an on-premises cluster (ISO 3166, such as DE)"
    )

    @property
    def name(self) -> str:
        """Label of the worker's object: the region, or the country in lower case."""
        return self.region or (self.country or "").lower()

    def is_within(self, pattern: str) -> bool:
        """Whether a residency pattern holds here; UnknownNameError for one that the catalogue cannot read."""
        if self.cloud and self.region:
            return catalog.matches(self.cloud, self.region, pattern)
        return catalog.is_country_within(self.country or "", pattern)


class ManagerSpec(Spec):
    """The cluster that jobs are submitted to."""

    stack: StackReference = Field(description="name of the manager's stack")
    runtimes: tuple[Name, ...] = Field(
        default=(),
        description="training runtimes that the manager lacks and that are copied from the workers",
    )


class WorkerSpec(Spec):
    """A cluster that jobs are dispatched to."""

    name: Name = Field(description="name of the worker in the manager")
    stack: StackReference = Field(description="name of the worker's stack")
    place: LocationSpec = Field(description="location of the worker: {cloud, region} or {country}")
    endpoint: Endpoint | None = Field(
        default=None,
        description="URL of the worker's API server as the manager sees it; default: the one in the worker's"
        " kubeconfig",
    )


class CredentialsSpec(Spec):
    """The tokens with which the manager authenticates to the workers."""

    lifetime_seconds: Annotated[int, Quantity("s", 600)] = Field(
        default=DAY,
        alias="lifetime",
        json_schema_extra={"default": "24h"},
        description="requested lifetime of a token; it is renewed after half of that",
    )
    serial: NonNegative = Field(
        default=0, description="serial number of the tokens; changing it renews all of them"
    )


class DispatchSpec(Spec):
    """A queue of the manager whose jobs run on workers."""

    name: Name = Field(description="name of the queue, the same in the manager and on the workers")
    teams: tuple[Name, ...] = Field(
        min_length=1, description="teams that may use the queue; each worker's stack must declare them"
    )
    quota: dict[Resource, Positive] = Field(
        min_length=1,
        description="accelerator resource, such as nvidia.com/gpu, to the maximum that the queue's jobs use"
        " on all workers together",
    )
    runtimes: tuple[Name, ...] = Field(
        min_length=1, description="training runtimes that the queue's jobs may use"
    )
    residency: tuple[Annotated[str, Field(min_length=1)], ...] | None = Field(
        default=None,
        min_length=1,
        description="regions where the queue's data may be stored: in:eu, in:de or patterns of regions",
    )
    datasets: tuple[Name, ...] = Field(
        default=(), description="datasets that every worker of the queue must have"
    )
    workers: tuple[Name, ...] | None = Field(
        default=None,
        min_length=1,
        description="workers that the queue dispatches to; default: all that `residency` permits",
    )

    def may_use(self, worker: WorkerSpec) -> bool:
        """Whether the queue's data may be where the worker is."""
        return self.residency is None or any(worker.place.is_within(pattern) for pattern in self.residency)


class Fleet(Spec):
    """A manager and its workers, as declared under `trainyard:fleet` of a stack file."""

    schema_version: Literal[1] = Field(alias="schema", description="version of the file format")
    name: Name = Field(description="name of the fleet and of its service account on the workers")
    manager: ManagerSpec = Field(description="the cluster that jobs are submitted to")
    workers: tuple[WorkerSpec, ...] = Field(min_length=1, description="clusters that jobs are dispatched to")
    credentials: CredentialsSpec = Field(
        default=CredentialsSpec(), description="tokens with which the manager authenticates to the workers"
    )
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
