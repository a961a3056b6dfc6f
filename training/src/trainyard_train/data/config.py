"""Settings of the data: the section `data` of a run's configuration."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trainyard_train.config_base import ConfigSection


class DataConfig(ConfigSection):
    """What to train on, and how much of it at once."""

    name: Literal["digits", "text", "pictures"] = "digits"
    """`digits`: 1797 images of handwritten digits, which come with scikit-learn. `text`: shards made by
    `trainyard_train.data.text`. `pictures`: a folder for each class, or shards of WebDataset (see
    `data.pictures`)."""
    path: str = ""
    """Folder of text or pictures, or its URL in an object store."""
    held_out_path: str = ""
    """Folder of pictures held out for evaluation; empty: a part of those at `path`."""
    side: int = Field(default=224, ge=8, le=4096)
    """Side of a cropped picture, in pixels."""
    workers: int = Field(default=2, ge=1, le=256)
    """Threads that decode pictures."""
    batch_size_per_rank: int = Field(default=32, ge=1, le=1 << 20)
    """Samples per rank in one step."""
    held_out: float = Field(default=0.2, gt=0, lt=1)
    """Part of the data that is held out for evaluation."""
