"""Loads the dataset that a configuration names (digits or text), split into training and held-out samples."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import torch

from trainyard_train.data.config import DataConfig
from trainyard_train.data.samples import Dataset, Samples
from trainyard_train.data.text import STORE_SECONDS, TokenShards


def load_dataset(
    config: DataConfig, context: int, seed: int, store_seconds: float = STORE_SECONDS
) -> Dataset:
    """Load the dataset that the configuration names.

    Raises:
        OSError, ValueError: the dataset cannot be read, or is invalid.
    """
    return _text(config, context, store_seconds) if config.name == "text" else _digits(config, seed)


def _text(config: DataConfig, context: int, store_seconds: float) -> Dataset:
    """Shards of tokens, whose last windows are held out."""
    shards = TokenShards(config.path, context, store_seconds=store_seconds)
    shards.check()
    num_train = len(shards) - max(1, int(len(shards) * config.held_out))
    if num_train < 1:
        raise ValueError(f"data.path: {config.path} has {len(shards)} samples; allowed: 2 or more")
    held_out = shards.part(num_train, len(shards))
    return Dataset(shards.part(0, num_train), held_out, shards.vocabulary)


def _digits(config: DataConfig, seed: int) -> Dataset:
    """The handwritten digits that come with scikit-learn, split by a shuffle of `seed`.

    The file is read directly: importing scikit-learn would cost more than the rest of the start.
    """
    table = np.loadtxt(_digits_file(), delimiter=",", dtype=np.float32)
    table = table[np.random.default_rng([seed]).permutation(len(table))]
    inputs = torch.from_numpy(table[:, :-1].reshape(-1, 1, 8, 8) / 16)
    targets = torch.from_numpy(table[:, -1].astype(np.int64))
    num_held_out = max(1, int(len(table) * config.held_out))
    return Dataset(
        train=Samples(inputs[num_held_out:], targets[num_held_out:]),
        held_out=Samples(inputs[:num_held_out], targets[:num_held_out]),
        num_classes=10,
    )


def _digits_file() -> Path:
    package = importlib.util.find_spec("sklearn")
    if package is None or not package.submodule_search_locations:
        raise FileNotFoundError(
            "data.name: got digits, which are part of scikit-learn, but it is not installed; install"
            " trainyard-train[data], or take an image with it"
        )
    return Path(package.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
