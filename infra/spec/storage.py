"""Storage: the shared checkpoint volume and the object store."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from infra.spec.base import Name, NonNegative, Positive, Spec, wrong


def _bucket(value: str) -> str:
    if re.fullmatch(r"[a-z0-9]([-a-z0-9]{1,61})[a-z0-9]", value):
        return value
    raise wrong(
        "bucket", "3 to 63 lower-case letters, digits and '-' (S3 bucket names)", "shorten or spell it so"
    )


USE_THE_BUCKET = (
    "what must outlive the filesystem goes to the bucket: `checkpoint.store`, or a job that copies"
)


class FilesystemSpec(Spec):
    """Base of the filesystems that targets have under the checkpoints."""

    NO_SNAPSHOTS: ClassVar[str] = f"it has none in this release; {USE_THE_BUCKET}"
    """Why no snapshots are taken of it, and what to do; empty where the target takes them."""

    @property
    def default_snapshot_days(self) -> int:
        """Days that a daily snapshot is retained by default."""
        return 0

    def snapshot_retention_days(self, checkpoints: CheckpointsSpec) -> int:
        """Days that a daily snapshot is retained; 0: none is taken."""
        days = checkpoints.snapshot_days
        return self.default_snapshot_days if days is None else days


class CheckpointsSpec(Spec):
    """The volume that all pods of a team share, read and write."""

    size_gib: Positive = Field(description="size that is claimed, in GiB")
    snapshot_days: Annotated[NonNegative, Field(le=90)] | None = Field(
        default=None,
        description="days that a daily snapshot of the filesystem is kept; 0: none is taken; default: 7 for"
        " FSx for Lustre that is linked to no bucket, else none",
    )


class LifecycleSpec(Spec):
    """When what a bucket keeps besides the newest goes. Nothing goes by age alone."""

    superseded_days: Positive = Field(
        default=7, description="days after which a checkpoint goes that a run has marked as superseded"
    )
    deleted_days: Annotated[Positive, Field(ge=7, le=90)] = Field(
        default=30, description="days in which what was deleted, or written over, can be had back"
    )
    unfinished_days: Positive = Field(default=7, description="days after which parts of no object go")


class ObjectStoreSpec(Spec):
    """An S3 store with one bucket for checkpoints."""

    bucket: Annotated[str, AfterValidator(_bucket)] = Field(description="name of the bucket")
    size_gib: Positive | None = Field(
        default=None, description="size of the volume under it, in GiB; a cloud's own store has none"
    )
    key_generations: dict[Name, Positive] = Field(
        default={},
        description="team to the number of its keys, 1 if left out: with the next one its keys are others; of"
        " the store that the platform serves",
    )
    lifecycle: LifecycleSpec | None = Field(
        default=None, description="when old things go, in a bucket that the stack makes; default: as usual"
    )


class StorageSpec(Spec):
    """Where checkpoints go."""

    checkpoints: CheckpointsSpec = Field(description="the shared checkpoint volume")
    object_store: ObjectStoreSpec = Field(description="the S3 store")
