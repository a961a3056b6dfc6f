"""`ClusterConfig`: the validated configuration of an embedded cluster, and its JSON form."""

from collections.abc import Mapping
from ipaddress import IPv4Network
from itertools import combinations
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from infra.errors import InputError, Problem

MAX_NODES = 64
POD_SUBNET_PREFIX = 24
SERVICE_PREFIXES = range(12, 25)
"""Allowed prefix lengths of the Service range: kube-apiserver refuses wider ones than /12, and DNS has the
tenth address."""

# At most 12 characters: the name of a network interface on the host contains it, and Linux allows 15.
ClusterName = Annotated[str, Field(pattern=r"^[a-z]([a-z0-9-]{0,10}[a-z0-9])?$")]
NodeName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
FolderName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


class Taint(_Model):
    """A taint of a Node."""

    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class NodeConfig(_Model):
    """One node."""

    name: NodeName
    pool: str
    gpus: int = Field(default=0, ge=0, le=64)
    """Number of simulated `nvidia.com/gpu` devices."""
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    images: tuple[str, ...] = ()
    """Names of pinned images (`training` for the artifact `image/training`) to import on this node."""


def _are_few_and_named_once(nodes: tuple[NodeConfig, ...]) -> tuple[NodeConfig, ...]:
    if len(nodes) > MAX_NODES:
        raise ValueError(f"at most {MAX_NODES} nodes")
    names = [node.name for node in nodes]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"node names must be unique, these are not: {', '.join(twice)}")
    return nodes


class ClusterConfig(_Model):
    """One cluster; the input of the resource `trainyard:local:EmbeddedCluster`."""

    name: ClusterName
    kubernetes_version: str
    nodes: Annotated[tuple[NodeConfig, ...], AfterValidator(_are_few_and_named_once)]
    """Nodes of the cluster; empty for remains of a cluster, which can only be removed."""
    pod_cidr: str = "10.244.0.0/16"
    service_cidr: str = "10.96.0.0/16"
    node_cidr: str = "10.89.0.0/24"
    data_dir: str
    """Root folder of the static hostPath volumes."""
    volume_sizes: Mapping[FolderName, Annotated[int, Field(gt=0)]] = {}
    """Folder in `data_dir` → maximum size in GiB; other folders are limited by the disk only."""

    @classmethod
    def parse(cls, data: object) -> "ClusterConfig":
        """Read JSON data.

        Raises InputError with every problem in it.
        """
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise InputError([_problem(dict(details)) for details in error.errors()]) from None

    def to_json(self) -> dict[str, object]:
        """Plain data with camelCase keys, from which `parse` makes an equal config."""
        return self.model_dump(mode="json", by_alias=True)

    @model_validator(mode="after")
    def _networks_fit(self) -> Self:
        ranges = {key: _network(key, getattr(self, key)) for key in ("pod_cidr", "service_cidr", "node_cidr")}
        for (one, first), (other, second) in combinations(ranges.items(), 2):
            if first.overlaps(second):
                raise ValueError(f"{to_camel(one)} {first} and {to_camel(other)} {second} overlap")
        if ranges["pod_cidr"].prefixlen > POD_SUBNET_PREFIX - 6:
            raise ValueError(f"podCidr {self.pod_cidr} is too small: at most /{POD_SUBNET_PREFIX - 6}")
        if ranges["service_cidr"].prefixlen not in SERVICE_PREFIXES:
            raise ValueError(f"serviceCidr {self.service_cidr} must be /12 to /24")
        if ranges["node_cidr"].prefixlen > 25:
            raise ValueError(f"nodeCidr {self.node_cidr} is too small: at most /25")
        return self


def _network(key: str, text: str) -> IPv4Network:
    try:
        return IPv4Network(text)
    except ValueError as error:
        raise ValueError(f"{to_camel(key)} {text!r} is no IPv4 network: {error}") from None


def _problem(details: dict[str, object]) -> Problem:
    location = details["loc"]
    parts = location if isinstance(location, tuple) else ()
    return Problem(
        path=".".join(("cluster", *(str(part) for part in parts))),
        got=repr(details["input"]) if parts else "the values as a whole",
        allowed=str(details["msg"]).removeprefix("Value error, "),
        fix="correct the value in the stack file",
    )
