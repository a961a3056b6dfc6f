"""Base models of the `target` section of all targets, and the supported Kubernetes versions."""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Annotated, Any, ClassVar, get_args

from pydantic import Field, GetJsonSchemaHandler, field_validator, model_validator
from pydantic_core import CoreSchema

import catalog
from infra.common.artifacts import kubernetes_version
from infra.stackfile.base import Spec, check_one_of, one_of
from infra.stackfile.machine import MachineSpec
from infra.stackfile.mirror import MirrorSpec
from infra.stackfile.storage import FilesystemSpec

TargetKind = str
"""Name of a target in `infra/common/target_registry.py`."""
KubernetesVersion = Annotated[str, one_of(lambda: [kubernetes_version()])]
"""Kubernetes version that this release was tested with, pinned in `versions.yaml`."""


def minor_of(version: str) -> str:
    """Return the minor version of Kubernetes: `1.35` of `1.35.4`."""
    return ".".join(version.split(".")[:2])


def supported_minors(kind: str = "") -> tuple[str, ...]:
    """Return the minor versions that a stack of a target may have."""
    return catalog.kubernetes_minors(minor_of(kubernetes_version()), kind)


class ContextCluster(Spec):
    """An existing cluster, reached through a context of your kubeconfig."""

    context: str = Field(min_length=1, description="name of the kubeconfig context")


@dataclass(frozen=True)
class ClusterOnHost:
    """Node network and data folder of a cluster of processes on this host."""

    node_cidr: IPv4Network
    data_dir: str | None
    """Folder of the cluster's data; None: the stack's own folder in the state."""


class TargetSpec(Spec):
    """Base of each target's own spec."""

    USUAL_BUCKET: ClassVar[str] = "checkpoints"
    """Default name of the bucket, with the target's keys and the cluster's name in braces."""
    USUAL_CLAIM: ClassVar[str] = "1Ti"
    """Default claim of a team on a filesystem without a stated size."""
    USUAL_FILESYSTEM: ClassVar[str] = ""
    """Kind of the default filesystem, which needs no other key; empty for none."""
    USUAL_SYSTEM: ClassVar[Mapping[str, object]] = {"nodes": 1}
    """Machine and number of nodes of the default system pool."""
    AS_MANY_IN_EACH_ZONE: ClassVar[bool] = False
    """Whether a pool has as many nodes in each of its zones."""
    ZONE: ClassVar[str] = ""
    """Form of a zone's name, from its region and letter; empty where zones have no default."""
    ZONAL_FILESYSTEMS: ClassVar[frozenset[str]] = frozenset()
    """Kinds of filesystems that are in one zone, by default that of the pools with a fabric."""
    USUAL_STORE: ClassVar[str] = ""
    """Default size of an object store that runs in the cluster; empty where none does."""
    LEAST_DELETED_DAYS: ClassVar[int] = 0
    """Least days that the stack's bucket keeps what is deleted; 0: it keeps nothing, or there is none."""
    WHY_NO_SNAPSHOTS: ClassVar[str] = FilesystemSpec.WHY_NO_SNAPSHOTS
    """Reason why the filesystem has no snapshots, for a target without a choice of filesystems."""

    kind: TargetKind = Field(description="name of the target")
    kubernetes_version: KubernetesVersion = Field(
        default_factory=kubernetes_version, description="Kubernetes version of the control plane"
    )

    @property
    def kubernetes_minor(self) -> str:
        """The minor version, as clouds count."""
        return minor_of(self.kubernetes_version)

    @property
    def rendered_version(self) -> str:
        """The version that charts are rendered for: of the tested minor version the tested one."""
        tested = kubernetes_version()
        return tested if self.kubernetes_minor == minor_of(tested) else f"{self.kubernetes_minor}.0"

    @property
    def price_region(self) -> str:
        """Region, or the zone where prices are per zone; empty for a target that is in no cloud."""
        return str(getattr(self, "region", "") or getattr(self, "zone", ""))

    @property
    def on_host(self) -> ClusterOnHost | None:
        """Network and data folder on this host; None for a cluster that is not on this host."""
        return None

    @property
    def location(self) -> str:
        """Region or zone, else the country of nodes that are in no cloud; empty without either."""
        return self.price_region or str(getattr(self, "country", None) or "")


class ManagedTargetSpec(TargetSpec):
    """Base of targets whose control plane is managed by others: they set minor versions only."""

    kubernetes_version: str = Field(
        default_factory=kubernetes_version, description="minor version of Kubernetes, as a quoted string"
    )
    mirror: MirrorSpec | None = Field(
        default=None,
        description="private registry that images and charts are pulled from, such as in an air-gapped"
        " network; default: their public registries",
    )

    @model_validator(mode="before")
    @classmethod
    def _of_the_existing_cluster(cls, data: Any) -> Any:  # noqa: ANN401 -- whatever the user wrote
        """A cluster that exists has its version already: one that is supported is the stack's."""
        cluster = data.get("existing_cluster") if isinstance(data, dict) else None
        version = cluster.get("version") if isinstance(cluster, dict) else None
        return {"kubernetes_version": version, **data} if version in supported_minors() else data

    @field_validator("kubernetes_version", mode="before")
    @classmethod
    def _is_supported(cls, value: object) -> object:
        return check_one_of(value, cls._supported_versions())

    @classmethod
    def _supported_versions(cls) -> list[str]:
        """A minor version, or the tested version in full."""
        (kind,) = get_args(cls.model_fields["kind"].annotation)
        return [*supported_minors(kind), kubernetes_version()]

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = super().__get_pydantic_json_schema__(core, handler)
        properties = handler.resolve_ref_schema(schema)["properties"]
        properties["kubernetes_version"]["enum"] = cls._supported_versions()
        return schema


class CloudSpec(ManagedTargetSpec):
    """Base of clouds, whose machine types the catalogue has, or the stack declares."""

    machines: dict[Annotated[str, Field(min_length=1)], MachineSpec] = Field(
        default={}, description="machine types that the catalogue lacks, name to properties"
    )
