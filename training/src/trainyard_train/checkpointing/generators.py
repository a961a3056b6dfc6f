"""Saves and restores the states of random number generators: PyTorch's, Python's, NumPy's, and those that the
program creates.
"""

from __future__ import annotations

import base64
import random
import sys
from collections.abc import Collection, Mapping
from types import ModuleType
from typing import Any, Final

import torch

_PYTHON: Final = random._inst
_MANY: Final = 100
"""Items from which on a list holds data."""


def capture(device: torch.device) -> dict[str, Any]:
    """The states of this process's global generators, as JSON.

    Args:
        device: device of this rank; if it is a GPU, its generator is included.
    """
    states = {"torch": state_of(torch.default_generator), "python": state_of(_PYTHON)}
    if device.type == "cuda":
        states["cuda"] = encode(torch.cuda.get_rng_state(device))
    if numpy := sys.modules.get("numpy"):
        kind, keys, *rest = numpy.random.get_state()
        states["numpy"] = [kind, keys.tolist(), *rest]
    return states


def restore(states: dict[str, Any], device: torch.device) -> None:
    """Restore the states that `capture` returned."""
    set_state(torch.default_generator, states["torch"])
    set_state(_PYTHON, states["python"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(decode(states["cuda"]), device)
    if "numpy" in states:
        import numpy as np

        kind, keys, *rest = states["numpy"]
        np.random.set_state((kind, np.array(keys, dtype=np.uint32), *rest))


def is_generator(value: object) -> bool:
    """Whether a value is a generator object of PyTorch, Python or NumPy."""
    kinds: tuple[type, ...] = (torch.Generator, random.Random)
    if numpy := sys.modules.get("numpy"):
        kinds += (numpy.random.Generator, numpy.random.RandomState)
    return isinstance(value, kinds)


def within(value: object, levels: int = 4) -> list[Any]:
    """The generator objects in an object's attributes and short lists, and in those of these."""
    if is_generator(value):
        return [value]
    if isinstance(value, Mapping):
        parts: Collection[Any] = value.values()
    else:
        parts = value if isinstance(value, list | tuple) else getattr(value, "__dict__", {}).values()
    if not levels or isinstance(value, type | ModuleType | torch.Tensor) or len(parts) > _MANY:
        return []
    found = [each for part in [*parts] for each in within(part, levels - 1)]
    return list({id(each): each for each in found}.values())


def seed(generator: Any, number: int) -> None:  # noqa: ANN401
    """Reset a generator object to a seed.

    Args:
        generator: the object.
        number: 64 bits.
    """
    if isinstance(generator, torch.Generator):
        generator.manual_seed(number)
    elif isinstance(generator, random.Random):
        generator.seed(number)
    else:
        bits = _bits_of(generator)
        bits.state = type(bits)(number).state


def state_of(generator: Any) -> Any:  # noqa: ANN401
    """The state of a generator object, as JSON."""
    if isinstance(generator, torch.Generator):
        return encode(generator.get_state())
    if isinstance(generator, random.Random):
        version, words, gauss = generator.getstate()
        return [version, list(words), gauss]
    return _plain(_bits_of(generator).state)


def set_state(generator: Any, state: Any) -> None:  # noqa: ANN401
    """Restore the state that `state_of` returned."""
    if isinstance(generator, torch.Generator):
        generator.set_state(decode(state))
    elif isinstance(generator, random.Random):
        version, words, gauss = state
        generator.setstate((version, tuple(words), gauss))
    else:
        _bits_of(generator).state = state


def _bits_of(generator: Any) -> Any:  # noqa: ANN401
    """The bit generator of a NumPy generator, which has its state."""
    return getattr(generator, "bit_generator", None) or generator._bit_generator


def _plain(state: Any) -> Any:  # noqa: ANN401
    if isinstance(state, dict):
        return {key: _plain(value) for key, value in state.items()}
    return state.tolist() if hasattr(state, "tolist") else state


def encode(state: torch.Tensor) -> str:
    """Encode a generator's state as text."""
    return base64.b64encode(state.numpy().tobytes()).decode()


def decode(text: str) -> torch.Tensor:
    """The state that `encode` was given."""
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
