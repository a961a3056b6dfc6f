"""The random generators of a rank: PyTorch's, Python's and NumPy's."""

from __future__ import annotations

import base64
import random
import sys
from typing import Any

import torch


def capture(device: torch.device) -> dict[str, Any]:
    """The states of all generators of this process, as JSON.

    Args:
        device: of this rank, whose generator counts too if it is a GPU.
    """
    version, words, gauss = random.getstate()
    states: dict[str, Any] = {"torch": encode(torch.get_rng_state()), "python": [version, list(words), gauss]}
    if device.type == "cuda":
        states["cuda"] = encode(torch.cuda.get_rng_state(device))
    if numpy := sys.modules.get("numpy"):
        kind, keys, *rest = numpy.random.get_state()
        states["numpy"] = [kind, keys.tolist(), *rest]
    return states


def restore(states: dict[str, Any], device: torch.device) -> None:
    """Put back what `capture` returned."""
    torch.set_rng_state(decode(states["torch"]))
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(decode(states["cuda"]), device)
    if "numpy" in states:
        import numpy as np

        kind, keys, *rest = states["numpy"]
        np.random.set_state((kind, np.array(keys, dtype=np.uint32), *rest))


def encode(state: torch.Tensor) -> str:
    """A generator's state as text."""
    return base64.b64encode(state.numpy().tobytes()).decode()


def decode(text: str) -> torch.Tensor:
    """What `encode` was given."""
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
