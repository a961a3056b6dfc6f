"""The kinds of objects that a run can track (modules, optimizers, other state), and how each is saved and
loaded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from argparse import Namespace
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping, MutableSequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, ClassVar, Final, Protocol, runtime_checkable

import torch
from torch import nn
from torch.utils.data import DataLoader

from trainyard_train.checkpointing import generators
from trainyard_train.config_base import ConfigError

_GROUPS: Final = "param_groups"
_SHARED: Final = "shared_state"
SHARED: Final = (_GROUPS, _SHARED)
"""Paths of an optimizer's state besides the state of each parameter."""
_GIVEN: Final = (type, FunctionType, BuiltinFunctionType, MethodType, Namespace)
_IN_C: Final = 1 << 8
"""Py_TPFLAGS_IMMUTABLETYPE: a class that is written in C, whose state is not in its attributes alone."""


@runtime_checkable
class Stateful(Protocol):
    """The protocol of `torch.distributed.checkpoint.stateful`, whose import takes a second."""

    def state_dict(self) -> dict[str, Any]:
        """The state to save."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:  # noqa: ANN401
        """Continue from what `state_dict` returned."""


class Tracked(ABC):
    """One object under its name. Paths are below that name; the empty one is the object itself."""

    kind: str
    replicated: bool = False
    """Whether all ranks hold the same values, so that they share the writing."""

    @abstractmethod
    def read(self) -> dict[str, Any]:
        """State to save, by path: live tensors, and values that may contain tensors."""

    def live(self) -> dict[str, torch.Tensor]:
        """Tensors that are loaded in place, by path."""
        return {}

    @abstractmethod
    def write(self, values: Mapping[str, Any]) -> None:
        """Put back what `read` returned; live tensors have been filled already."""

    def of_rank0(self) -> set[str]:
        """Paths that count on rank 0 alone, from which all others take them."""
        return set()


class TrackedModule(Tracked):
    """A module without its wrappers (DDP, `torch.compile`)."""

    kind = "module"

    def __init__(self, name: str, module: nn.Module) -> None:
        while isinstance(inner := getattr(module, "_orig_mod", getattr(module, "module", None)), nn.Module):
            if isinstance(module, nn.parallel.DistributedDataParallel):
                self.replicated = torch.distributed.get_world_size(module.process_group) == _world_size()
                self._broadcasts_buffers = module.broadcast_buffers
            elif not hasattr(module, "_orig_mod") and not isinstance(module, nn.DataParallel):
                break
            module = inner
        self.module = module
        if any(type(each).__name__ == "FullyShardedDataParallel" for each in module.modules()):
            raise ConfigError([f"{name}: got a module in FSDP1's wrapper; allowed: FSDP2, by fully_shard()"])

    _broadcasts_buffers = False

    def read(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        seen: set[int] = set()
        for name, value in self.module.state_dict(keep_vars=True).items():
            if id(value) not in seen or not isinstance(value, torch.Tensor):  # tied weights count once
                found[name] = value
            seen.add(id(value))
        return found

    def named_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Parameters as they are in the module, by path."""
        names = {id(value): name for name, value in self.read().items()}
        for name, parameter in self.module.named_parameters():
            yield names.get(id(parameter), name), parameter

    def of_rank0(self) -> set[str]:
        if not (self.replicated and self._broadcasts_buffers):
            return set()
        buffers = {id(buffer) for buffer in self.module.buffers()}
        return {name for name, value in self.read().items() if id(value) in buffers}

    def write(self, values: Mapping[str, Any]) -> None:
        live = self.live()
        rest = {path: value for path, value in values.items() if path not in live}
        if rest:  # results of get_extra_state(), and of hooks on other tensors
            self.module.load_state_dict(rest, strict=False)

    def live(self) -> dict[str, torch.Tensor]:
        known = {id(each) for each in chain(self.module.parameters(), self.module.buffers())}
        return {path: value for path, value in self.read().items() if id(value) in known}


@dataclass
class TrackedOptimizer(Tracked):
    """An optimizer; its state is named by the parameters, so that their order does not matter.

    Optimizers in its attributes, such as the one of a rank's shard in a ZeroRedundancyOptimizer, count too.
    """

    name: str
    optimizer: torch.optim.Optimizer
    names: Callable[[], Mapping[int, str]]
    """Path of each tracked parameter, by its `id`."""
    kind = "optimizer"

    def __post_init__(self) -> None:
        while any(inner.state is self.optimizer.state for inner in self._inner().values()):
            (self.optimizer,) = self._inner().values()  # from Accelerate's wrapper

    def _inner(self) -> dict[str, torch.optim.Optimizer]:
        attributes = vars(self.optimizer).items()
        return {name: each for name, each in attributes if isinstance(each, torch.optim.Optimizer)}

    def parameters(self) -> dict[str, torch.Tensor]:
        """Parameters that the optimizer updates, by path; without the module's name if all are of one module.

        Raises:
            ConfigError: a parameter would not be saved, since no tracked object contains it.
        """
        names, found = self.names(), {}
        for number, group in enumerate(self.optimizer.param_groups):
            for parameter in group["params"]:
                if id(parameter) not in names:
                    problem = (
                        f"{self.name}: param_groups[{number}] has a parameter of shape"
                        f" {tuple(parameter.shape)} that is in no tracked module and would be lost; track the"
                        " module that has it, or the parameter itself"
                    )
                    raise ConfigError([problem])
                found[names[id(parameter)]] = parameter
        owners = {path.partition(".")[0] for path in found}
        return {p.partition(".")[2]: t for p, t in found.items()} if len(owners) == 1 else found

    def takes(self, path: str, packed: Any) -> bool:  # noqa: ANN401
        """Whether this rank can hold a parameter's saved state: not if only inner optimizers have it, and
        their shard lacks the parameter.
        """
        inner = self._inner()
        if not inner or path in SHARED or packed.keys() - inner.keys():
            return True
        parameter = self.parameters()[path]
        return any(_has(inner[attribute], parameter) for attribute in packed)

    def read(self) -> dict[str, Any]:
        state = self.optimizer.state
        parameters = self.parameters()
        found: dict[str, Any] = {name: state[p] for name, p in parameters.items() if state.get(p)}
        for attribute, inner in self._inner().items():
            for name, p in parameters.items():
                if inner.state.get(p):
                    found[name] = {**found.get(name, {}), attribute: inner.state[p]}
        if shared := {key: value for key, value in state.items() if not isinstance(key, torch.Tensor)}:
            found[_SHARED] = shared
        found[_GROUPS] = [
            {key: value for key, value in group.items() if key not in {"params", "param_names"}}
            for group in self.optimizer.param_groups
        ]
        return found

    def write(self, values: Mapping[str, Any]) -> None:
        for name, parameter in self.parameters().items():
            own = values.get(name, {})
            for attribute, inner in self._inner().items():
                state = own.pop(attribute, {})
                _put(inner, parameter, state if _has(inner, parameter) else {})
            _put(self.optimizer, parameter, own)
        self.optimizer.state.update(values.get(_SHARED, {}))
        for group, saved in zip(self.optimizer.param_groups, values[_GROUPS], strict=True):
            for key, value in saved.items():
                if isinstance(group.get(key), torch.Tensor) and isinstance(value, torch.Tensor):
                    group[key].copy_(value)  # a graph of the compiler may hold this tensor
                else:
                    group[key] = value


def _has(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> bool:
    return any(each is parameter for group in optimizer.param_groups for each in group["params"])


def _put(optimizer: torch.optim.Optimizer, parameter: torch.Tensor, state: dict[str, Any]) -> None:
    """Set an optimizer's state of a parameter, or delete it."""
    optimizer.state.pop(parameter, None)
    if state:
        optimizer.state[parameter] = state


@dataclass
class TrackedValue(Tracked):
    """An object whose state is one value, with what returns the value and what puts it back."""

    get: Callable[[], Any]
    put: Callable[[Any], object]
    kind: str = "state"

    def read(self) -> dict[str, Any]:
        return {"": self.get()}

    def write(self, values: Mapping[str, Any]) -> None:
        self.put(values[""])


class TrackedOnRank0(TrackedValue):
    """Like `TrackedValue`, but the state of rank 0 is saved, and all ranks load it."""

    def of_rank0(self) -> set[str]:
        return {""}


@dataclass
class TrackedDict(Tracked):
    """A dict, or the attributes of an object, changed in place.

    Random generators in it are restored in place. What is tracked by a name of its own stays as it is.
    """

    values: MutableMapping[str, Any]
    is_tracked: Callable[[object], bool]
    """Whether an object has a name of its own."""
    kind = "state"
    _keeps: ClassVar[bool] = False
    """Whether what a checkpoint lacks is kept."""

    def read(self) -> dict[str, Any]:
        saved = {key: _content(value) for key, value in self.values.items() if not self._stays(value)}
        same = len(saved) == len(self.values) and not any(map(generators.is_generator, self.values.values()))
        return {"": self.values if same else saved}  # preserves the type, such as Counter

    def write(self, values: Mapping[str, Any]) -> None:
        saved = dict(values[""])
        for key, value in self.values.items():
            if self._stays(value) or (self._keeps and key not in saved):
                saved[key] = value
            elif generators.is_generator(value) and key in saved:
                generators.set_state(value, saved[key])
                saved[key] = value
        self.values.clear()
        self.values.update(saved)

    def _stays(self, value: object) -> bool:
        """Whether a value is not saved here: it has a name of its own, or so have all of its items."""
        items = _items(value)
        return self.is_tracked(value) or (len(items) > 0 and all(map(self._stays, items)))


class TrackedAttributes(TrackedDict):
    """The attributes of an object of a class written in Python.

    Functions, classes, a program's arguments, and the object's owner among them stay.
    """

    _keeps = True

    def __init__(self, owned: object, is_tracked: Callable[[object], bool]) -> None:
        super().__init__(vars(owned), is_tracked)
        self.owned = owned

    def _stays(self, value: object) -> bool:
        return isinstance(value, _GIVEN) or super()._stays(value) or self._is_owner(value)

    def _is_owner(self, value: object) -> bool:
        """Whether a value has the object in its attributes, or in lists or dicts there, as a trainer has its
        callbacks.
        """
        parts = getattr(value, "__dict__", {}).values()
        return any(self.owned is each for part in parts for each in (part, *_items(part)))


def _items(value: object) -> Collection[object]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def _content(value: Any) -> Any:  # noqa: ANN401
    return generators.state_of(value) if generators.is_generator(value) else value


def _replace(items: MutableSequence[Any], new: Iterable[Any]) -> None:
    """Change a list or a deque in place."""
    items.clear()
    items.extend(new)


@dataclass
class TrackedTensor(Tracked):
    """A tensor, changed in place."""

    tensor: torch.Tensor
    kind = "tensor"

    def read(self) -> dict[str, Any]:
        return {"": self.tensor}

    def live(self) -> dict[str, torch.Tensor]:
        return {"": self.tensor}

    def write(self, values: Mapping[str, Any]) -> None:
        """Copy a value from elsewhere: live tensors are filled in place."""
        if values[""] is not self.tensor:
            self.tensor.detach().copy_(values[""])


_KINDS: Final[tuple[tuple[Any, Callable[[Any], Tracked]], ...]] = (
    (torch.Tensor, TrackedTensor),
    (Stateful, lambda each: TrackedValue(each.state_dict, each.load_state_dict)),
    (MutableSequence, lambda each: TrackedValue(partial(list, each), partial(_replace, each))),
)


_ALLOWED: Final = (
    "allowed: a module, an optimizer, a tensor, a dict, a list, a random generator, or an object with"
    " attributes, or with state_dict() and load_state_dict(); a loader goes to run.batches(loader), a number"
    " or text to run.step(loss, name=value)"
)


def track(
    name: str,
    value: object,
    names: Callable[[], Mapping[int, str]],
    is_tracked: Callable[[object], bool],
) -> Tracked:
    """Wrap an object by its type, for saving and loading.

    Args:
        name: under which it is saved.
        value: the object.
        names: path of each tracked parameter, by its `id`.
        is_tracked: whether an object has a name of its own.

    Raises:
        ConfigError: there is no way to save it.
    """
    if isinstance(value, nn.Module):
        return TrackedModule(name, value)
    if isinstance(value, torch.optim.Optimizer):
        return TrackedOptimizer(name, value, names)
    if generators.is_generator(value):
        state = partial(generators.state_of, value), partial(generators.set_state, value)
        return TrackedValue(*state, kind="generator")
    for of, kind in _KINDS:
        if isinstance(value, of):
            return kind(value)
    if isinstance(value, MutableMapping):
        return TrackedDict(value, is_tracked)
    if _has_its_state_in_attributes(value):
        return TrackedAttributes(value, is_tracked)
    raise ConfigError([f"{name}: got a {type(value).__module__}.{type(value).__qualname__}; {_ALLOWED}"])


def _has_its_state_in_attributes(value: object) -> bool:
    if isinstance(value, DataLoader) or not getattr(value, "__dict__", None):
        return False
    return not any(kind.__flags__ & _IN_C for kind in type(value).__mro__[:-1])


def _world_size() -> int:
    return torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
