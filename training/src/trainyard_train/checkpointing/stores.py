"""Choosing where checkpoints are kept."""

from __future__ import annotations

from pathlib import Path

from trainyard_train.checkpointing.checkpoint import KEEP_THREE, CheckpointStore, Retention
from trainyard_train.checkpointing.folder_store import FolderStore


def open_store(place: str, retention: Retention = KEEP_THREE, timeout_seconds: float = 60) -> CheckpointStore:
    """The store at a place: a folder that all ranks share, or a URL such as `s3://bucket/runs/7`.

    Args:
        place: where.
        retention: which checkpoints stay.
        timeout_seconds: for one request to an object store, with its retries.
    """
    if "://" not in place:
        return FolderStore(Path(place), retention)
    from trainyard_train.checkpointing.object_store import ObjectStore  # what reaches it takes time to import

    return ObjectStore(place, retention, timeout_seconds)
