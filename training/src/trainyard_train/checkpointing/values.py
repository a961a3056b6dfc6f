"""Encodes nested state as JSON and decodes it, with the tensors in a separate mapping by path.

JSON has no tuples, bytes, sets or keys that are not text: these are objects with a key `$`. Nothing that is
read is ever executed, so an object of a user's class is refused: the user passes its contents instead.
Subclasses of numbers, text and mappings are saved as the plain type.
"""

from __future__ import annotations

import base64
import sys
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from enum import Enum
from functools import cache
from typing import Any, Final

import torch

from trainyard_train.config_base import ConfigError

_TAG: Final = "$"
_ALLOWED: Final = (
    "tensors, numbers, text, bytes, members of an Enum, None, and lists, tuples, sets, dicts and NumPy arrays"
    " of them; let state_dict() return only these"
)
_ITSELF: Final = (
    "the object tracked under a separate name, or only its changing values, passed to"
    " run.step(loss, name=value)"
)


def pack(value: Any, path: str, tensors: MutableMapping[str, torch.Tensor]) -> Any:  # noqa: ANN401
    """JSON for a value; its tensors, by their path, go to `tensors`.

    Raises:
        ConfigError: the value, or one in it, cannot be saved, or two tensors would have the same path.
    """
    packed: Any = value
    if isinstance(value, torch.Tensor):
        packed = {_TAG: "tensor", "of": _keep(value, path, tensors)}
    elif type(value) in (list, tuple, set, frozenset, deque, torch.Size):
        parts = sorted(value) if isinstance(value, set | frozenset) else value
        packed = [pack(part, f"{path}.{index}", tensors) for index, part in enumerate(parts)]
        packed = packed if type(value) is list else {_TAG: type(value).__name__, "of": packed}
        if isinstance(value, deque):
            packed["with"] = [value.maxlen]
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        kind = type(value)
        parts = [pack(part, f"{path}.{index}", tensors) for index, part in enumerate(value)]
        named = [kind.__module__, kind.__qualname__, *value._fields]
        packed = {_TAG: "tuple", "of": parts, "named": named}
    elif isinstance(value, Mapping):
        packed = _pack_mapping(value, path, tensors)
    elif hasattr(value, "__array__") and hasattr(value, "dtype"):  # a NumPy array, without importing NumPy
        packed = _pack_array(value, path, tensors)
    elif not (value is None or type(value) in (bool, int, float, str)):
        packed = _pack_other(value, path)
    return packed


def unpack(packed: Any, tensor: Callable[[str], torch.Tensor]) -> Any:  # noqa: ANN401
    """The value of what `pack` made; `tensor` returns the one of a path."""
    if isinstance(packed, list):
        return [unpack(part, tensor) for part in packed]
    if not isinstance(packed, dict):
        return packed
    if _TAG not in packed:
        return {key: unpack(part, tensor) for key, part in packed.items()}
    kind, of, named = packed[_TAG], packed["of"], packed.get("named", ())
    if kind in _SIMPLE:
        return _SIMPLE[kind](of, *named)
    if kind in _LISTS:
        made = _LISTS[kind](unpack(of, tensor), *packed.get("with", ()))
        return tuple.__new__(_named_tuple(*named), made) if named else made
    found = tensor(of)
    return found if kind == "tensor" else found.numpy() if kind == "ndarray" else found.numpy()[()]


def without_classes(packed: Any) -> Any:  # noqa: ANN401
    """The same with plain tuples for namedtuples, and names for an enum's members, for files that others
    read.
    """
    if isinstance(packed, list):
        return [without_classes(part) for part in packed]
    if not isinstance(packed, dict):
        return packed
    kept = (key for key in packed if key != "named" or _TAG not in packed)
    return {key: without_classes(packed[key]) for key in kept}


def no_tensor(path: str) -> torch.Tensor:
    """Pass this to `unpack` where no tensor is expected: it raises KeyError."""
    raise KeyError(path)


def differing(packed: Sequence[Any], path: str) -> list[str]:
    """Return the paths of the entries that are not equal in all of these values that `pack` made.

    Args:
        packed: the ranks' values of one path.
        path: path of the values; returned itself if they are not all dicts with text keys.
    """
    if not all(isinstance(each, dict) and _TAG not in each for each in packed):
        return [path]
    keys = sorted({key for each in packed for key in each})
    return [f"{path}.{key}" for key in keys if any(each.get(key) != packed[0].get(key) for each in packed)]


def paths(packed: Any) -> list[str]:  # noqa: ANN401
    """Return the paths of the tensors in a value that `pack` made."""
    found: list[str] = []
    unpack(packed, lambda path: found.append(path) or torch.empty(0))  # type: ignore[func-returns-value]
    return found


def is_below(name: str, path: str) -> bool:
    """Whether a path is that of an object of this name, or of a part of it."""
    return path == name or path.startswith(f"{name}.")


def _class_of(module: str, name: str) -> Any:  # noqa: ANN401
    """What the program has under the name of a class; None if nothing."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, "__dict__", {}).get(part)  # getattr() of a module may execute something
    return found


def _member(member: str, module: str = "", name: str = "") -> Enum | str:
    """The member of the program's enumeration of this name; if there is none, the member's name."""
    kind = _class_of(module, name)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind.__members__.get(member, member)
    return member


_SIMPLE: Final[Mapping[str, Callable[..., Any]]] = {
    "bytes": base64.b64decode,
    "dtype": lambda name: getattr(torch, name),
    "device": torch.device,
    "enum": _member,
}


@cache
def _named_tuple(module: str, name: str, *fields: str) -> type[tuple[Any, ...]]:
    """The program's class of this name, if it is a namedtuple of these fields; else one like it."""
    found = _class_of(module, name)
    if isinstance(found, type) and issubclass(found, tuple) and getattr(found, "_fields", None) == fields:
        return found
    return namedtuple(name.rpartition(".")[2], fields)


_LISTS: Final[Mapping[str, Callable[..., Any]]] = {
    "dict": dict,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "deque": deque,
    "Size": torch.Size,
    "OrderedDict": OrderedDict,
    "Counter": lambda pairs: Counter(dict(pairs)),
    "defaultdict": lambda pairs, factory: defaultdict(_FACTORIES[factory], pairs),
}
_FACTORIES: Final[Mapping[str, Callable[[], Any] | None]] = {
    **{each.__name__: each for each in (int, float, str, bool, list, dict, set, tuple)},
    "None": None,
}
"""Factories that a `defaultdict` may have, by name."""


def _keep(tensor: torch.Tensor, path: str, tensors: MutableMapping[str, torch.Tensor]) -> str:
    if path in tensors:
        raise ConfigError([f"{path}: two tensors have this path; give one of their keys another name"])
    tensors[path] = tensor
    return path


def _pack_mapping(
    value: Mapping[Any, Any], path: str, tensors: MutableMapping[str, torch.Tensor]
) -> dict[str, Any]:
    typed = type(value) in (OrderedDict, Counter, defaultdict)
    if not typed and all(type(key) is str for key in value) and _TAG not in value:
        return {key: pack(part, f"{path}.{key}", tensors) for key, part in value.items()}
    pairs = [[pack(key, path, tensors), pack(part, f"{path}.{key}", tensors)] for key, part in value.items()]
    if not isinstance(value, defaultdict):
        return {_TAG: type(value).__name__ if typed else "dict", "of": pairs}
    factory = getattr(value.default_factory, "__name__", "None")
    if _FACTORIES.get(factory, ...) is not value.default_factory:
        allowed = f"one of {', '.join(_FACTORIES)}"
        raise ConfigError(
            [f"{path}: got a defaultdict of {factory}, which cannot be saved; allowed: {allowed}"]
        )
    return {_TAG: "defaultdict", "of": pairs, "with": [factory]}


def _pack_other(value: Any, path: str) -> Any:  # noqa: ANN401
    if isinstance(value, bytes):
        return {_TAG: "bytes", "of": base64.b64encode(value).decode()}
    if isinstance(value, torch.dtype | torch.device):
        return {_TAG: type(value).__name__, "of": str(value).removeprefix("torch.")}
    if isinstance(value, int | float):  # an instance of a subclass, such as an IntEnum
        return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Enum) and value.name in type(value).__members__:
        return {_TAG: "enum", "of": value.name, "named": [type(value).__module__, type(value).__qualname__]}
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    allowed = _ITSELF if hasattr(value, "state_dict") or getattr(value, "__dict__", None) else _ALLOWED
    raise ConfigError([f"{path}: got a {kind}, which cannot be saved; allowed: {allowed}"])


def _pack_array(value: Any, path: str, tensors: MutableMapping[str, torch.Tensor]) -> dict[str, Any]:  # noqa: ANN401
    """Pack a NumPy array, or a NumPy number."""
    import numpy as np

    try:
        tensor = torch.from_numpy(np.ascontiguousarray(value).copy().reshape(np.shape(value)))
    except TypeError as error:
        problem = f"{path}: got a NumPy array of {value.dtype}, which cannot be saved; allowed: numbers"
        raise ConfigError([problem]) from error
    kind = "ndarray" if isinstance(value, np.ndarray) else "number"
    return {_TAG: kind, "of": _keep(tensor, path, tensors)}
