"""Storage: the shared checkpoint volume and the object store."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from infra.spec.base import Positive, Spec, wrong


def _bucket(value: str) -> str:
    if re.fullmatch(r"[a-z0-9]([-a-z0-9]{1,61})[a-z0-9]", value):
        return value
    raise wrong(
        "bucket", "3 to 63 lower-case letters, digits and '-' (S3 bucket names)", "shorten or spell it so"
    )


class CheckpointsSpec(Spec):
    """The volume that all pods of a team share, read and write."""

    size_gib: Positive = Field(description="size that is claimed, in GiB")


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
    lifecycle: LifecycleSpec | None = Field(
        default=None, description="when old things go, in a bucket that the stack makes; left out: as usual"
    )


class StorageSpec(Spec):
    """Where checkpoints go."""

    checkpoints: CheckpointsSpec = Field(description="the shared checkpoint volume")
    object_store: ObjectStoreSpec = Field(description="the S3 store")
