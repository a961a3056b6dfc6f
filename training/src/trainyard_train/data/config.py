"""Settings of the data: the section `data` of a run's configuration."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trainyard_train.config_base import ConfigSection


class DataConfig(ConfigSection):
    """What to train on, and how much of it at once."""

    name: Literal["digits", "text"] = "digits"
    """`digits`: 1797 images of handwritten digits, which come with scikit-learn. `text`: shards of tokens
    (`trainyard_train.data.text.write_tokens`)."""
    path: str = ""
    """Folder of text, or its URL in an object store."""
    batch_size_per_rank: int = Field(default=32, ge=1, le=1 << 20)
    """Samples per rank in one step."""
    held_out: float = Field(default=0.2, gt=0, lt=1)
    """Part of the data that is held out for evaluation."""
