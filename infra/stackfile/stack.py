"""`Stack`: the frozen model of a whole stack file."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

import catalog
from infra.stackfile.admission import AdmissionSpec
from infra.stackfile.base import Boolean, Integer, Name, Spec
from infra.stackfile.dataset import DatasetSpec
from infra.stackfile.grace import GraceSeconds
from infra.stackfile.images import ImagesSpec
from infra.stackfile.network import NetworkSpec
from infra.stackfile.node_pool import NodePoolSpec
from infra.stackfile.operators import OperatorsSpec
from infra.stackfile.profiles import ProfileName
from infra.stackfile.queue import PriorityValue, QueueSpec, TeamSpec
from infra.stackfile.self_service import SelfServiceSpec
from infra.stackfile.storage import StorageSpec
from infra.stackfile.targets import AnyTarget

DEFAULT_PRIORITIES: Mapping[str, int] = {"low": 100, "normal": 1000, "high": 10000}


class LogsSpec(Spec):
    """Logs of team pods, stored on the shared filesystem."""

    kept: Boolean = Field(
        default=True, description="whether logs are retained after their pod has been deleted"
    )
    retention_days: Annotated[Integer, Field(ge=1, le=3650)] = Field(
        default=30, description="days after its last line until a log is deleted"
    )


class Stack(Spec):
    """One training cluster, as declared under `trainyard:stack` of a stack file."""

    DEFAULTED: ClassVar = frozenset({"schema", "name", "storage", "queues", "teams"})

    schema_version: Literal[1] = Field(alias="schema", description="version of the file format")
    name: Name = Field(description="name of the cluster; default: the stack's")
    profile: ProfileName | None = Field(
        default=None,
        exclude=True,  # all that it sets is in the other keys
        description="a set of defaults; `trainyard explain KEY` shows a key's, `validate --expand` all",
    )
    target: AnyTarget = Field(description="the target; `kind` selects it")
    pools: tuple[NodePoolSpec, ...] = Field(
        min_length=1, description="node pools; default: a system pool beside those of the file"
    )
    storage: StorageSpec = Field(description="checkpoint volume and object store")
    datasets: tuple[DatasetSpec, ...] = Field(
        default=(), description="datasets that the stack copies to the shared filesystem"
    )
    operators: OperatorsSpec = Field(default=OperatorsSpec(), description="job controllers")
    queues: tuple[QueueSpec, ...] = Field(
        min_length=1,
        description="cluster queues; default: one per fabric class, of all its pools with accelerators, with"
        " their whole size: reserved pools, then spot, then on-demand",
    )
    teams: tuple[TeamSpec, ...] = Field(
        min_length=1, description="teams that submit jobs; required without `teams_from`"
    )
    teams_from: Name | None = Field(
        default=None,
        exclude=True,  # its teams are in `teams` (infra/stackfile/source.py)
        description="folder beside the stack file with more teams, one in each file: NAME.yaml has the keys"
        " of an entry of `teams`",
    )
    self_service: SelfServiceSpec | None = Field(
        default=None, description="what teams of `teams_from` may have without a platform owner's approval"
    )
    admission: AdmissionSpec = Field(
        default=AdmissionSpec(), description="further admission rules for team namespaces"
    )
    images: ImagesSpec = Field(default=ImagesSpec(), description="digests that pin the stack's images")
    network: NetworkSpec = Field(
        default=NetworkSpec(),
        description="destinations outside of their namespace that team pods may connect to",
    )
    logs: LogsSpec = Field(default=LogsSpec(), description="retention of team pod logs")
    priorities: dict[Name, PriorityValue] = Field(
        default=dict(DEFAULT_PRIORITIES),
        min_length=1,
        description="workload priority classes, name to value; the higher value has precedence",
    )
    grace_seconds: dict[Name, GraceSeconds] = Field(
        default={}, alias="grace", description="termination grace period of a runtime's pods, by runtime name"
    )
    unchecked_runtimes: tuple[Name, ...] = Field(
        default=(),
        description="training runtimes whose jobs skip the start-up check of the fabric, such as for images"
        " without /bin/sh",
    )

    def pool(self, name: str) -> NodePoolSpec:
        """Return the pool of that name; KeyError where there is none."""
        return {pool.name: pool for pool in self.pools}[name]

    def dataset(self, name: str) -> DatasetSpec:
        """Return the dataset of that name; KeyError where there is none."""
        return {dataset.name: dataset for dataset in self.datasets}[name]

    @property
    def runtimes(self) -> tuple[str, ...]:
        """Names of the training runtimes that the stack's fabrics and operators give."""
        return runtime_names(self.pools, self.operators)


def runtime_names(pools: tuple[NodePoolSpec, ...], operators: OperatorsSpec) -> tuple[str, ...]:
    """Name one runtime per framework and fabric class: `torch-tcp`, `mpi-tcp`."""
    if operators.trainer == "off":
        return ()
    fabrics = sorted({pool.fabric for pool in pools if pool.accelerator})
    return tuple(
        f"{framework}-{fabric}" for fabric in fabrics for framework in catalog.fabric(fabric).frameworks
    )
