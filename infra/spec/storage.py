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


class ObjectStoreSpec(Spec):
    """An S3 store with one bucket for checkpoints."""

    bucket: Annotated[str, AfterValidator(_bucket)] = Field(description="name of the bucket")
    size_gib: Positive | None = Field(
        default=None, description="size of the volume under it, in GiB; a cloud's own store has none"
    )


class StorageSpec(Spec):
    """Where checkpoints go."""

    checkpoints: CheckpointsSpec = Field(description="the shared checkpoint volume")
    object_store: ObjectStoreSpec = Field(description="the S3 store")
