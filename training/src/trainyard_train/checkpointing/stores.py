"""Opens the checkpoint store at a location (a folder or an object store) or of a run, and finds a single
checkpoint in it.
"""

from __future__ import annotations

from pathlib import Path

from trainyard_train.checkpointing.checkpoint import KEEP_THREE, CheckpointStore, Retention, step_of
from trainyard_train.checkpointing.folder_store import FolderStore, exists


def open_store(
    location: str, retention: Retention = KEEP_THREE, timeout_seconds: float = 60
) -> CheckpointStore:
    """Return the store at a location: a folder that all ranks share, or a URL such as `s3://bucket/runs/7`.

    Args:
        location: folder or URL.
        retention: rule for the checkpoints that are retained.
        timeout_seconds: timeout of one request to an object store with its retries.
    """
    if "://" not in location:
        return FolderStore(Path(location), retention)
    from trainyard_train.checkpointing.object_store import ObjectStore  # slow to import

    return ObjectStore(location, retention, timeout_seconds)


def store_of_run(run: str) -> CheckpointStore:
    """The store of a run: what its folder holds, or a URL. Raises FileNotFoundError: there is no run."""
    if "://" in run:
        return open_store(run)
    folder = Path(run) / "checkpoints"
    if not exists(folder):
        raise FileNotFoundError(f"{run} is not a run's folder: it has no folder named checkpoints")
    return open_store(str(folder))


def find_checkpoint(location: str) -> tuple[CheckpointStore, int | None]:
    """Return the store of a location, and the step if it is one checkpoint; None if it is a run.

    Raises:
        FileNotFoundError: there is no run.
    """
    parent, _, name = location.rstrip("/").rpartition("/")
    step = step_of(name)
    return (store_of_run(location), None) if step is None else (open_store(parent or "."), step)
