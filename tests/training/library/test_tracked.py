"""Objects that a run tracks are restored exactly; what cannot be saved is refused by its name."""

import enum
import random
import re
import sys
from argparse import Namespace
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainyard_train import ConfigError, MismatchError, Run
from trainyard_train.checkpointing.state import decode
from trainyard_train.checkpointing.tensor_files import file_name
from trainyard_train.parallelism.mesh import Mesh

_NUMBER = re.compile(r"(float|complex|int|uint|bool|bfloat)(8|16|32|64|128)?(_\w+)?")
TYPES = sorted(
    {
        found
        for name in dir(torch)
        if isinstance(found := getattr(torch, name), torch.dtype) and _NUMBER.fullmatch(name)
    },
    key=str,
)


class Priority(enum.IntEnum):
    HIGH = 3


class RatePhase(enum.Enum):
    WARM_UP, DECAY = object(), object()


class PlainState:
    """An object with `state_dict` and `load_state_dict`."""

    def __init__(self, state: dict[Any, Any]) -> None:
        self.state = state

    def state_dict(self) -> dict[Any, Any]:
        return self.state

    def load_state_dict(self, state: dict[Any, Any]) -> None:
        self.state = state


def run_of_one_rank(run_dir: Path, **objects: object) -> Run:
    run = Run(run_dir, Mesh(0, 1, torch.device("cpu"), "node", dist.HashStore()), every_steps=1000)
    run.track(**objects)
    return run


def save_and_load(run_dir: Path, saved: dict[str, object], fresh: dict[str, object]) -> None:
    """Save objects after a step, and load them into fresh ones."""
    run = run_of_one_rank(run_dir, **saved)
    with run:
        run.step()
    assert run.exit_code == 0
    run = run_of_one_rank(run_dir, **fresh)
    try:
        assert run.load()
    finally:
        run.close()
    assert run.steps == 1


def test_a_state_of_any_kind_comes_back_with_its_types(tmp_path: Path) -> None:
    state: dict[Any, Any] = {
        "number": 3,
        "huge": float("inf"),
        "text": "ü",
        "none": None,
        "yes": True,
        "bytes": b"\x00\xff",
        "tuple": (1, [2.5, (3,)]),
        "set": {1, 2},
        "deque": deque([1, 2], maxlen=2),
        "ordered": OrderedDict(b=1, a=2),
        "counter": Counter("aab"),
        "default": defaultdict(list, {3: [4]}),
        "size": torch.Size([2, 3]),
        "type": torch.bfloat16,
        "device": torch.device("cuda", 1),
        "level": Priority.HIGH,
        "phase": RatePhase.DECAY,
        "unsorted": {"b": 1, "a": 2},
        ("a", 1): {"$": "no tag", 7: "number as a key"},
        "array": np.arange(6, dtype=np.uint16).reshape(2, 3),
        "scalar": np.float32(1.5),
        "tensors": [torch.arange(3), {"deep": torch.ones(2, 2)}],
    }
    loaded = PlainState({})
    save_and_load(tmp_path, {"kept": PlainState(state)}, {"kept": loaded})
    array, tensors = loaded.state.pop("array"), loaded.state.pop("tensors")
    assert np.array_equal(array, state.pop("array"))
    assert array.dtype == np.uint16
    for one, other in zip([tensors[0], tensors[1]["deep"]], [torch.arange(3), torch.ones(2, 2)], strict=True):
        assert torch.equal(one, other)
    del state["tensors"]
    assert loaded.state == state
    assert loaded.state["deque"].maxlen == 2
    assert [*loaded.state["unsorted"]] == ["b", "a"]
    assert loaded.state["default"]["unknown"] == []
    assert [type(each) for each in loaded.state.values()] == [
        int if isinstance(each, Priority) else type(each) for each in state.values()
    ]


def _four_generators(seed: int) -> dict[str, Any]:
    return {
        "torch": torch.Generator().manual_seed(seed),
        "python": random.Random(seed),
        "numpy": np.random.default_rng(seed),
        "older": np.random.RandomState(seed),
    }


def test_random_generators_and_lists_of_a_program_are_restored_in_place(tmp_path: Path) -> None:
    saved, fresh = _four_generators(1), _four_generators(2)
    replay: deque[tuple[int, torch.Tensor]] = deque(maxlen=3)
    save_and_load(tmp_path, {**saved, "replay": deque([(1, torch.ones(2))], 3)}, {**fresh, "replay": replay})
    assert torch.rand(2, generator=fresh["torch"]).equal(torch.rand(2, generator=saved["torch"]))
    for name in ("python", "numpy", "older"):
        assert fresh[name].random() == saved[name].random()
    ((number, tensor),) = replay
    assert (number, tensor.tolist(), replay.maxlen) == (1, [1, 1], 3)


class Transition(NamedTuple):
    state: torch.Tensor
    action: int


def test_a_namedtuple_comes_back_as_the_programs_class_or_as_one_like_it(tmp_path: Path) -> None:
    gone = namedtuple("gone", "a b")
    replay: list[Any] = []
    save_and_load(tmp_path, {"replay": [Transition(torch.ones(2), 1), gone(2, "b")]}, {"replay": replay})
    assert [type(each).__name__ for each in replay] == ["Transition", "gone"]
    assert isinstance(replay[0], Transition) and replay[0].state.tolist() == [1, 1]
    assert (replay[1].a, replay[1].b) == (2, "b")


class Averages:
    """An object with its state in attributes, as meters, schedules and averages of weights have it."""

    report = staticmethod(print)

    def __init__(self, model: nn.Module, seed: int) -> None:
        self.model, self.trace = model, print
        self.chance = random.Random(seed)
        self.shadow = {name: value.clone() for name, value in model.state_dict().items()}
        self.count, self.best = 0, float("inf")


def test_the_attributes_of_an_object_come_back_and_what_is_tracked_itself_stays(tmp_path: Path) -> None:
    models = [nn.Linear(2, 2), nn.Linear(2, 2)]
    saved, fresh = (Averages(model, seed) for seed, model in enumerate(models))
    saved.count, saved.best, saved.extra = 3, 0.5, deque([1])  # type: ignore[attr-defined]
    chance = fresh.chance
    save_and_load(tmp_path, {"ema": saved, "model": models[0]}, {"ema": fresh, "model": models[1]})
    assert (fresh.count, fresh.best, fresh.extra) == (3, 0.5, deque([1]))  # type: ignore[attr-defined]
    assert (fresh.model, fresh.trace, fresh.chance) == (models[1], print, chance)
    assert chance.random() == saved.chance.random()
    assert all(torch.equal(fresh.shadow[name], value) for name, value in models[0].state_dict().items())


class Stopper:
    """A callback, which its trainer owns."""

    def __init__(self, trainer: "OwnTrainer") -> None:
        self.trainer, self.best, self.arguments = trainer, float("inf"), Namespace(patience=3)


class OwnTrainer:
    def __init__(self, model: nn.Module) -> None:
        self.models, self.epoch = {"student": model}, 0
        self.callbacks: list[Stopper] = []


def test_owners_arguments_and_lists_of_what_is_tracked_itself_stay(tmp_path: Path) -> None:
    """Also where they are only attached after the load."""

    def build() -> dict[str, Any]:
        trainer = OwnTrainer(nn.Linear(2, 2))
        return {"model": trainer.models["student"], "trainer": trainer, "stopper": Stopper(trainer)}

    saved, fresh = build(), build()
    for parts in (saved, fresh):
        parts["trainer"].callbacks.append(parts["stopper"])
    saved["stopper"].best, saved["stopper"].arguments.patience, saved["trainer"].epoch = 0.5, 9, 4
    stopper, trainer = fresh["stopper"], fresh["trainer"]
    of_callback = {name: saved[name] for name in ("model", "stopper")}
    save_and_load(tmp_path / "callback", of_callback, {name: fresh[name] for name in ("model", "stopper")})
    assert (stopper.best, stopper.arguments.patience, stopper.trainer) == (0.5, 3, trainer)
    trainer.callbacks = []
    save_and_load(tmp_path / "all", saved, fresh)
    assert (trainer.epoch, trainer.models, trainer.callbacks) == (4, {"student": fresh["model"]}, [])


def test_a_dict_keeps_what_is_tracked_itself(tmp_path: Path) -> None:
    models = [nn.Linear(2, 2), nn.Linear(2, 2)]
    saved, fresh = ({"model": model, "epoch": number} for number, model in enumerate(models))
    save_and_load(tmp_path, {"all": fresh, "model": models[1]}, {"all": saved, "model": models[0]})
    assert saved == {"model": models[0], "epoch": 1}


def test_variables_of_a_loop_come_back_once(tmp_path: Path) -> None:
    run = run_of_one_rank(tmp_path, extra={})
    assert run.restored("best", 9.0) == 9  # loads the run
    run.step(best=3.0, batch=(torch.ones(2), "x"))
    run.finish()
    run.close()
    run = run_of_one_rank(tmp_path, extra={})
    assert run.find().keys() >= {"run", "extra"}
    assert run.steps == 1
    batch = run.restored("batch", (torch.zeros(1), ""))
    assert (batch[0].tolist(), batch[1]) == ([1, 1], "x")
    assert [run.restored("best", 9.0), run.restored("best", 9.0)] == [3, 9]
    with pytest.raises(ConfigError, match=r"run\.variables\.thing: got a .*Opaque, which cannot be saved"):
        run.step(thing=Opaque())
    run.close()
    with pytest.raises(SystemExit, match="1"):
        run.exit()


class Meter:
    """Averages, as programs of images have them."""

    def __init__(self) -> None:
        self.sum, self.count, self.last = 0.0, 0, torch.zeros(())


def test_an_object_that_each_epoch_creates_goes_on_in_the_epoch_that_was_under_way(tmp_path: Path) -> None:
    def begin() -> tuple[Run, Meter, deque[int], torch.Tensor]:
        run = run_of_one_rank(tmp_path, extra={})
        run.load()
        meter, window, total = Meter(), deque[int](maxlen=2), torch.zeros(2)
        run.track(meter=meter, window=window, total=total)
        return run, meter, window, total

    run, meter, window, total = begin()
    for value in (1, 2, 3):
        meter.sum, meter.count, meter.last = meter.sum + value, meter.count + 1, torch.tensor(float(value))
        window.append(value)
        total += value
        run.step(seen=value)
    run.finish()
    run.close()
    run, meter, window, total = begin()
    assert (meter.sum, meter.count, meter.last.item()) == (6, 3, 3)
    assert (window, window.maxlen, total.tolist(), run.restored("seen", 0)) == (deque([2, 3]), 2, [6, 6], 3)
    of_next_epoch = Meter()
    run.track(meter=of_next_epoch)
    assert of_next_epoch.count == 0
    of_next_epoch.count = 1
    run.step()
    run.finish()
    run.close()
    assert begin()[1].count == 1


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_tensors_of_every_type_come_back_bit_for_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    def some(seed: int) -> list[torch.Tensor]:
        torch.manual_seed(seed)
        high = 2 if dtype == torch.bool else 256
        return [
            torch.randint(0, high, (n * dtype.itemsize,), dtype=torch.uint8).view(dtype).reshape(shape)
            for n, shape in [(6, (2, 3)), (1, ()), (0, (0, 4))]
        ]

    saved, fresh = some(1), some(2)
    names = ["matrix", "number", "empty"]
    save_and_load(tmp_path, dict(zip(names, saved, strict=True)), dict(zip(names, fresh, strict=True)))
    for one, other in zip(saved, fresh, strict=True):
        as_bytes = [each.reshape(-1).view(torch.uint8) for each in (one, other)]
        assert torch.equal(*as_bytes)


def test_an_optimizer_comes_back_with_whatever_it_keeps(tmp_path: Path) -> None:
    def build(seed: int) -> dict[str, Any]:
        torch.manual_seed(seed)
        model = nn.Linear(3, 2)
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
        return {"model": model, "optimizer": optimizer}

    def closure(parts: dict[str, Any]) -> Callable[[], torch.Tensor]:
        def compute() -> torch.Tensor:
            parts["optimizer"].zero_grad()
            loss: torch.Tensor = parts["model"](torch.ones(1, 3)).square().sum()
            loss.backward()
            return loss

        return compute

    saved, fresh = build(1), build(2)
    saved["optimizer"].step(closure(saved))
    save_and_load(tmp_path, saved, fresh)
    for parts in (saved, fresh):
        parts["optimizer"].step(closure(parts))
    assert torch.equal(saved["model"].weight, fresh["model"].weight)


class Sharded(torch.optim.SGD):
    """An optimizer that has an inner optimizer for some parameters, as ZeroRedundancyOptimizer does."""

    def __init__(self, model: nn.Linear, own: torch.Tensor) -> None:
        super().__init__(model.parameters(), lr=0.1, momentum=0.9)
        self.optim = torch.optim.Adam([own])

    def step(self, closure: Any = None) -> Any:
        self.optim.step()
        return super().step(closure)


def test_an_optimizer_within_an_optimizer_comes_back_too(tmp_path: Path) -> None:
    saved, fresh, other = ((m := nn.Linear(3, 2), Sharded(m, m.weight)) for _ in range(3))
    saved[0](torch.ones(3)).sum().backward()
    saved[1].step()
    save_and_load(tmp_path, dict(zip("mo", saved, strict=True)), dict(zip("mo", fresh, strict=True)))
    weights = [model.weight for model, _ in (saved, fresh)]
    (one, two) = (each[1].optim.state[weight] for each, weight in zip((saved, fresh), weights, strict=True))
    assert one.keys() == two.keys() > {"exp_avg"}
    assert all(torch.equal(one[key], two[key]) for key in one)
    buffers = [each[1].state[each[0].bias]["momentum_buffer"] for each in (saved, fresh)]
    assert torch.equal(*buffers)
    elsewhere = Sharded(other[0], other[0].bias)
    save_and_load(tmp_path / "moved", dict(zip("mo", saved, strict=True)), {"m": other[0], "o": elsewhere})
    assert not elsewhere.optim.state


def test_moments_keep_their_type_where_weights_have_another(tmp_path: Path) -> None:
    def build() -> dict[str, Any]:
        model = nn.Linear(3, 2, dtype=torch.bfloat16)
        optimizer = torch.optim.AdamW(model.parameters())
        optimizer.state[model.weight] = {"step": 5, "exp_avg": torch.rand(2, 3), "scale": torch.rand(2)}
        return {"model": model, "optimizer": optimizer}

    saved, fresh = build(), build()
    fresh["optimizer"].state.clear()
    save_and_load(tmp_path, saved, fresh)
    was, now = (parts["optimizer"].state[parts["model"].weight] for parts in (saved, fresh))
    assert now["exp_avg"].dtype == torch.float32
    assert all(torch.equal(torch.as_tensor(was[key]), torch.as_tensor(now[key])) for key in was)


class SumMetric(nn.Module):
    """A module with extra state, and neither parameters nor buffers, as torchmetrics' metrics are."""

    total = torch.zeros(1)

    def get_extra_state(self) -> torch.Tensor:
        return self.total

    def set_extra_state(self, state: torch.Tensor) -> None:
        self.total = state


def test_a_module_without_parameters_gets_its_state_back(tmp_path: Path) -> None:
    metric, fresh = SumMetric(), SumMetric()
    metric.total = torch.full((1,), 3.0)
    save_and_load(tmp_path, {"sums": metric}, {"sums": fresh})
    assert fresh.total.item() == 3


def test_tied_weights_are_written_once(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False))
    model[1].weight = model[0].weight
    run = run_of_one_rank(tmp_path, model=model)
    with run:
        run.step()
    data = (tmp_path / "checkpoints" / "step-00000001" / file_name(0)).read_bytes()
    assert [name for name in decode(data) if name.startswith("model.")] == ["model.0.weight"]


class Opaque:
    pass


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ({"thing": Opaque()}, r"thing: got a .*Opaque; allowed: a module, an optimizer, a tensor, a dict"),
        ({"thing": 3}, r"thing: got a builtins.int; allowed: .* a number or text to run.step\(loss, name="),
        (
            {"loader": DataLoader(TensorDataset(torch.ones(1)))},
            r"loader: got a .*DataLoader; allowed: .* goes to run.batches\(loader\)",
        ),
        ({"log": sys.stderr}, r"log: got a .*; allowed"),
        (
            {"ema": Averages(nn.Linear(1, 1), 1)},
            r"ema\.model: got a .*Linear, .*; allowed: the object tracked under",
        ),
        ({"extra": {"a": [1, Opaque()]}}, r"extra\.a\.1: got a .*Opaque, which cannot be saved; allowed"),
        ({"extra": [nn.Linear(1, 1)]}, r"extra\.0: got a .*Linear, .*; allowed: the object tracked under"),
        ({"extra": {"a": defaultdict(lambda: 3)}}, r"extra\.a: got a defaultdict of <lambda>, which cannot"),
        ({"extra": {"a.b": torch.ones(1), "a": {"b": torch.ones(1)}}}, r"extra\.a\.b: two tensors have this"),
        ({"optimizer": torch.optim.SGD([nn.Parameter(torch.ones(2))])}, r"shape \(2,\) that is in no"),
        ({"model": nn.LazyLinear(3)}, r"model\.weight: got a parameter of a lazy module, which has no shape"),
        ({"extra": torch.ones(2, device="meta")}, r"extra: got a tensor on the meta device"),
        ({"extra": torch.eye(2).to_sparse()}, r"extra: got a torch.sparse_coo tensor"),
    ],
)
def test_what_cannot_be_saved_is_named(tmp_path: Path, objects: dict[str, object], message: str) -> None:
    """It is refused before the first step, not when the first checkpoint is due."""
    with pytest.raises(ConfigError, match=message):
        run_of_one_rank(tmp_path, **objects).load()
    assert not (tmp_path / "checkpoints").exists() or not list((tmp_path / "checkpoints").glob("step-*"))


def test_a_second_object_of_a_name_is_refused_and_so_is_a_late_model_or_loader(tmp_path: Path) -> None:
    run = run_of_one_rank(tmp_path, extra={})
    with pytest.raises(ConfigError, match="extra: is tracked already"):
        run.track(extra={})
    run.load()
    for late in (nn.Linear(1, 1), torch.optim.SGD([torch.ones(1)])):
        with pytest.raises(ConfigError, match="late: is tracked after the run was loaded"):
            run.track(late=late)
    with pytest.raises(ConfigError, match="batches: is tracked after the run was loaded"):
        run.batches([1])
    run.close()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model": nn.Linear(3, 4)}, r"model\.weight: .* float32 \(2, 3\), the model float32 \(4, 3\)"),
        ({"model": nn.Linear(3, 2, bias=False)}, r"model\.bias: only in the checkpoint"),
        ({"model": nn.Linear(3, 2).double()}, r"model\.bias: .* float32 \(2,\), the model float64"),
        ({"model": nn.Linear(3, 2), "ema": {}}, r"ema: .* nothing of this name, the run tracks state"),
        ({}, r"model: the checkpoint has module of this name, the run tracks nothing"),
    ],
)
def test_a_changed_model_is_refused_with_what_changed_and_nothing_is_lost(
    tmp_path: Path, changed: dict[str, object], message: str
) -> None:
    run = run_of_one_rank(tmp_path, model=nn.Linear(3, 2))
    with run:
        run.step()
    loaded = (tmp_path / "checkpoints" / "step-00000001" / "manifest.json").read_bytes()
    run = run_of_one_rank(tmp_path, **changed)
    with pytest.raises(MismatchError, match=message):
        run.load()
    run.close()
    assert (tmp_path / "checkpoints" / "step-00000001" / "manifest.json").read_bytes() == loaded
    run = run_of_one_rank(tmp_path, **changed)
    with pytest.raises(SystemExit, match="2"), run:
        pass


def test_weights_that_are_no_numbers_are_not_committed(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    run = run_of_one_rank(tmp_path, model=model)
    run.load()
    run.step()
    run.save()
    with torch.no_grad():
        model.weight.fill_(float("nan"))
    run.step()
    with pytest.raises(OSError, match="step 2 could not be saved"):
        run.save()
    run.close()
    assert [path.name for path in (tmp_path / "checkpoints").glob("step-*")] == ["step-00000001"]
