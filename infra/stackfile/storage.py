"""The stack file's `storage` section: the shared checkpoint volume and the object store."""

import re
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from infra.stackfile.base import Gibibytes, Name, NonNegative, Positive, Spec, wrong


def _bucket(value: str) -> str:
    if re.fullmatch(r"[a-z0-9]([-a-z0-9]{1,61})[a-z0-9]", value):
        return value
    raise wrong("bucket", "3 to 63 lower-case letters, digits and '-' (S3 bucket names)", "correct the name")


USE_THE_BUCKET = (
    "write data that must outlive the filesystem to the bucket: by `checkpoint.store`, or a job that copies"
)


class FilesystemSpec(Spec):
    """Base of the filesystems that targets have under the checkpoints."""

    WHY_NO_SNAPSHOTS: ClassVar[str] = f"this release takes no snapshots of it; {USE_THE_BUCKET}"
    """Reason why the filesystem has no snapshots, with the next step; empty where the target takes them."""

    name: Name | None = Field(
        default=None, description="part of its resources' names, where a stack has two filesystems"
    )

    def role(self, kind: str) -> str:
        """Return the role of a resource of this filesystem, for its name."""
        return f"{kind}-{self.name}" if self.name else kind

    @property
    def default_snapshot_days(self) -> int:
        """Days that a daily snapshot is retained by default."""
        return 0

    def snapshot_retention_days(self, checkpoints: "CheckpointsSpec") -> int:
        """Days that a daily snapshot is retained; 0: none is taken."""
        days = checkpoints.snapshot_days
        return self.default_snapshot_days if days is None else days


class CheckpointsSpec(Spec):
    """The shared volume of a team's pods, read-write."""

    DEFAULTED: ClassVar = frozenset({"size"})

    size_gib: Gibibytes = Field(
        alias="size",
        description="requested size of the volume; default: the filesystem, divided among the teams",
    )
    snapshot_days: Annotated[NonNegative, Field(le=90)] | None = Field(
        default=None,
        description="retention of daily filesystem snapshots in days; 0: no snapshots; default: 7 for FSx"
        " for Lustre without a link to a bucket, else 0",
    )


class LifecycleSpec(Spec):
    """Lifecycle rules of the bucket. No object is deleted for its age alone."""

    superseded_days: Positive = Field(
        default=7,
        description="days after which a checkpoint that the training package marked as superseded is deleted:"
        " S3 and Azure count from its write, Google Cloud from the mark",
    )
    deleted_days: Annotated[Positive, Field(ge=7, le=90)] = Field(
        default=30, description="days in which a deleted or overwritten object can be restored"
    )
    deleted_checkpoint_days: Annotated[NonNegative, Field(le=90)] | None = Field(
        default=None,
        description="the same for checkpoints, of which each save deletes one; default, and least, in S3 and"
        " its like: 1. Google Cloud and Azure keep all deleted objects so long: 0, or 7 (default) and more",
    )
    unfinished_days: Positive = Field(
        default=7, description="days until an incomplete multipart upload is deleted"
    )

    def checkpoint_days(self, least: int) -> int:
        """Days in which a deleted checkpoint can be restored; `least`: of the store, which may take 0 too."""
        days = least if self.deleted_checkpoint_days is None else self.deleted_checkpoint_days
        return min(max(least, days) if days or least == 1 else 0, self.deleted_days)


class ObjectStoreSpec(Spec):
    """An object store with one bucket for checkpoints."""

    DEFAULTED: ClassVar = frozenset({"bucket"})

    bucket: Annotated[str, AfterValidator(_bucket)] = Field(
        description="name of the bucket; default: from the account and the stack"
    )
    size_gib: Gibibytes | None = Field(
        default=None,
        alias="size",
        description="size of the volume under an object store that runs in the cluster; unused on a cloud",
    )
    key_generations: dict[Name, Positive] = Field(
        default={},
        description="team to the generation of its access keys, 1 by default: a higher number rotates them;"
        " for an object store that runs in the cluster",
    )
    lifecycle: LifecycleSpec | None = Field(
        default=None, description="lifecycle rules of a bucket that the stack creates"
    )


class StorageSpec(Spec):
    """Storage of checkpoints."""

    DEFAULTED: ClassVar = frozenset({"checkpoints", "object_store"})

    checkpoints: CheckpointsSpec = Field(description="the shared checkpoint volume")
    object_store: ObjectStoreSpec = Field(description="the object store")
