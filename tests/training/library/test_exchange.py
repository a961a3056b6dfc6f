"""Checkpoints are exported to other formats, which PyTorch and safetensors read, and imported, to the bit."""

import json
import os
import pickle
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_optimizer_state_dict

from tests.training.library import launch
from tests.training.library.test_tracked import run_of_one_rank
from trainyard_train import ConfigError, MismatchError, Run, export_checkpoint, import_checkpoint
from trainyard_train.__main__ import main

Parts = dict[str, Any]


class Pair(NamedTuple):
    """A NamedTuple, which an export writes as a plain tuple."""

    rows: int
    columns: int


def parts(seed: int, *, trained: bool = False) -> Parts:
    """Make a model with buffers and tied weights, its optimizer and scheduler, and other kinds of state."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 8), nn.Linear(8, 8))
    model[3].weight = model[2].weight
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    if trained:
        model(torch.randn(5, 4)).sum().backward()
        optimizer.step()
        scheduler.step()
    ema = torch.randn(3, dtype=torch.bfloat16)
    notes = {"best": 0.5, "shapes": Pair(1, 2), "last": torch.full((2,), seed)}
    return {"model": model, "optimizer": optimizer, "scheduler": scheduler, "ema": ema, "notes": notes}


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Return the leaves of nested state by path."""
    if isinstance(value, Mapping):
        pairs: Any = value.items()
    elif isinstance(value, list | tuple):
        pairs = enumerate(value)
    else:
        return {path: value}
    return {key: leaf for name, part in pairs for key, leaf in flat(part, f"{path}/{name}").items()}


def assert_same(one: Any, other: Any) -> None:
    found, wanted = flat(one), flat(other)
    assert found.keys() == wanted.keys()
    for path, value in wanted.items():
        if isinstance(value, torch.Tensor):
            assert found[path].dtype == value.dtype, path
            assert torch.equal(found[path], value), path
        else:
            assert found[path] == value, path


def states(of: Parts) -> Parts:
    """Return the `state_dict` of each part, as a program saves them."""
    model, optimizer = get_state_dict(of["model"], of["optimizer"])
    model.pop("3.weight")  # tied weights are saved once
    return {
        "model": model,
        "optimizer": optimizer,
        "scheduler": of["scheduler"].state_dict(),
        "ema": of["ema"],
        "notes": of["notes"],
    }


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Parts]:
    """Make a run with one checkpoint; return its folder, and what it has tracked."""
    objects = parts(1, trained=True)
    run = run_of_one_rank(tmp_path / "run", **objects)
    with run:
        run.step()
    return tmp_path / "run", objects


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def read_dcp(out: Path) -> Parts:
    state = states(parts(2, trained=True)) | {"run": {"steps": 0, "epoch": 0}}
    dcp.load(state, checkpoint_id=out, no_dist=True)
    return state


def read_torch(out: Path) -> Parts:
    found: Parts = torch.load(out, weights_only=True)
    return found


@pytest.mark.parametrize(("to", "read"), [("dcp", read_dcp), ("torch", read_torch)])
def test_an_export_has_all_that_was_tracked_and_can_be_imported(
    saved: tuple[Path, Parts], tmp_path: Path, to: str, read: Callable[[Path], Parts]
) -> None:
    run_dir, objects = saved
    assert main(["export", str(run_dir), "--to", to, str(tmp_path / "out")]) == 0
    found = read(tmp_path / "out")
    assert found.pop("run") == {"steps": 1, "epoch": 0}
    assert_same(found, states(objects))
    assert main(["import", str(tmp_path / "out"), str(tmp_path / "other")]) == 0
    fresh = parts(3)
    run = run_of_one_rank(tmp_path / "other", **fresh)
    assert run.load()
    run.close()
    assert run.steps == 1
    assert_same(states(fresh), states(objects))


def test_an_optimizer_takes_exported_state_by_pytorch(saved: tuple[Path, Parts], tmp_path: Path) -> None:
    run_dir, objects = saved
    export_checkpoint(run_dir, "torch", tmp_path / "out.pt", only=["optimizer"])
    found = torch.load(tmp_path / "out.pt", weights_only=True)["optimizer"]
    fresh = parts(3)
    set_optimizer_state_dict(fresh["model"], fresh["optimizer"], found)
    assert_same(states(fresh)["optimizer"], states(objects)["optimizer"])


def test_weights_become_safetensors_and_come_back(saved: tuple[Path, Parts], tmp_path: Path) -> None:
    run_dir, objects = saved
    export_checkpoint(run_dir, "hf", tmp_path / "one")
    export_checkpoint(run_dir, "hf", tmp_path / "many", shard_bytes=200)
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["model.safetensors"]
    index = json.loads((tmp_path / "many" / "model.safetensors.index.json").read_text())
    many: dict[str, torch.Tensor] = {}
    for name in sorted(set(index["weight_map"].values())):
        tensors = load_file(tmp_path / "many" / name)
        assert {index["weight_map"][key] for key in tensors} == {name}
        assert len(tensors) == 1 or sum(each.nbytes for each in tensors.values()) <= 200
        many |= tensors
    wanted = dict(states(objects)["model"])
    assert index["metadata"] == {"total_size": sum(each.nbytes for each in wanted.values())}
    assert_same(many, wanted)
    assert_same(load_file(tmp_path / "one" / "model.safetensors"), wanted)
    for source in (tmp_path / "many", tmp_path / "one", tmp_path / "one" / "model.safetensors"):
        fresh = parts(3)
        import_checkpoint(source, tmp_path / f"run-{source.name}")
        run = run_of_one_rank(tmp_path / f"run-{source.name}", **fresh)
        assert run.load()
        run.close()
        assert run.steps == 0
        assert_same(states(fresh)["model"], wanted)


def test_a_file_of_another_program_is_imported_by_the_names_that_the_run_tracks(tmp_path: Path) -> None:
    """A file as Lightning writes it, with tied weights under both names."""
    objects = parts(1, trained=True)
    weights = OrderedDict((f"net.{key}", value) for key, value in objects["model"].state_dict().items())
    torch.save({"state_dict": weights, "epoch": 3, "optimizer_states": [{}]}, tmp_path / "last.ckpt")
    arguments = ["import", str(tmp_path / "last.ckpt"), str(tmp_path / "run")]
    assert main([*arguments, "--map", "state_dict.net=model", "--only", "model"]) == 0
    fresh = parts(3)
    before = {name: value for name, value in states(parts(3)).items() if name != "model"}
    run = run_of_one_rank(tmp_path / "run", **fresh)
    assert run.load()
    assert_same(dict(fresh["model"].state_dict()), dict(objects["model"].state_dict()))
    assert_same({name: value for name, value in states(fresh).items() if name != "model"}, before)
    run.step()
    run.save()
    run.close()


def test_what_does_not_fit_is_listed_with_shapes(tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(2, 3), "extra": torch.ones(4)}, tmp_path / "other.pt")
    import_checkpoint(tmp_path / "other.pt", tmp_path / "run")
    run = run_of_one_rank(tmp_path / "run", model=nn.Linear(3, 5))
    with pytest.raises(MismatchError) as refused:
        run.load()
    run.close()
    assert str(refused.value).splitlines()[1:] == [
        "model.weight: the checkpoint has float32 (2, 3), the model float32 (5, 3)",
        "model.bias: the checkpoint has nothing of this name, the model float32 (5,)",
        "model.extra: only in the checkpoint, float32 (4,)",
    ]


class WithExtra(nn.Linear):
    def get_extra_state(self) -> dict[str, int]:
        return {"seen": 1}

    def set_extra_state(self, state: dict[str, int]) -> None:
        pass


@pytest.mark.parametrize(
    ("module", "only", "message"),
    [
        (WithExtra(2, 2), [], r"model\._extra_state: is not a tensor, and safetensors stores only tensors"),
        (
            nn.Linear(2, 2, dtype=torch.complex128),
            [],
            r"model\.weight: got complex128, which safetensors cannot store",
        ),
        (nn.Linear(2, 2), ["extra"], r"only: got extra \(state\); allowed with hf: one module of model"),
        (nn.Linear(2, 2), ["ema"], r"only: got 'ema'; allowed: extra, model, run"),
    ],
)
def test_what_safetensors_cannot_hold_is_refused_by_its_name_and_nothing_is_written(
    tmp_path: Path, module: nn.Module, only: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of_one_rank(tmp_path / "run", model=module, extra={"a": 1})
    with run:
        run.step()
    arguments = ["export", str(tmp_path / "run"), str(tmp_path / "out"), "--to", "hf"]
    assert main([*arguments, *(f"--only={name}" for name in only)]) == 2
    with pytest.raises(ConfigError, match=message):
        export_checkpoint(tmp_path / "run", "hf", tmp_path / "out", only=only)
    assert names(tmp_path) == ["run"]
    assert capsys.readouterr().err.startswith("training: ")


def test_an_export_that_fails_leaves_nothing_and_takes_no_name_that_exists(
    saved: tuple[Path, Parts], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir, _ = saved
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(ConfigError, match="taken: exists already"):
        export_checkpoint(run_dir, "torch", tmp_path / "taken")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("the disk is full")))
    for to in ("hf", "dcp", "torch"):
        assert main(["export", str(run_dir), "--to", to, str(tmp_path / "out")]) == 1
    assert names(tmp_path) == ["run", "taken"]
    assert (tmp_path / "taken").read_text() == "mine"


class Harmful:
    def __reduce__(self) -> Any:
        return (os.mkdir, ("harmed",))


@pytest.mark.parametrize("form", ["torch", "dcp", "dcp-metadata"])
def test_nothing_in_a_pickle_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "source"
    if form == "torch":
        torch.save({"model": {"a": torch.ones(1)}, "more": Harmful()}, source)
    elif form == "dcp":
        dcp.save({"model": {"a": torch.ones(1)}, "more": Harmful()}, checkpoint_id=source, no_dist=True)
    else:
        source.mkdir()
        (source / ".metadata").write_bytes(pickle.dumps(Harmful()))
    with pytest.raises(ConfigError, match="source"):
        import_checkpoint(source, tmp_path / "run")
    assert names(tmp_path) == ["source"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"source: cannot be read"),
        (b"no checkpoint", r"source: cannot be read"),
        (None, r"source: got a path that does not exist; allowed: a file of torch.save"),
        ([1], r"source: got a list; allowed: a dict of the objects' states"),
        ({"opt": torch.optim.AdamW(nn.Linear(1, 1).parameters()).state_dict()}, r"^$"),
    ],
)
def test_a_source_that_cannot_be_taken_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    source = tmp_path / "source"
    if isinstance(content, bytes):
        source.write_bytes(content)
    elif content is not None:
        optimizer = torch.optim.AdamW(parameters := list(nn.Linear(1, 1).parameters()))
        if isinstance(content, dict):
            parameters[0].grad = torch.ones(1, 1)
            optimizer.step()
            content, message = {"opt": optimizer.state_dict()}, r"opt: knows parameters by numbers \(0, …\)"
        torch.save(content, source)
    with pytest.raises(ConfigError, match=message):
        import_checkpoint(source, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("content", [b"", b"\x80", pickle.dumps({"a": 1})], ids=["empty", "cut", "a dict"])
def test_metadata_of_dcp_that_are_none_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / ".metadata").write_bytes(content)
    with pytest.raises(ConfigError, match=r"source/\.metadata: "):
        import_checkpoint(tmp_path / "source", tmp_path / "run")


@pytest.mark.parametrize("text", ["{", "[]", '{"weight_map": ["a"]}', '{"weight_map": {"a": 1}}'])
def test_an_index_of_safetensors_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.safetensors").write_bytes(b"")
    (source / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ConfigError, match=r"index\.json: cannot be read"):
        import_checkpoint(source, tmp_path / "run")


def test_a_run_that_has_checkpoints_is_not_imported_into(saved: tuple[Path, Parts], tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(1)}, tmp_path / "source")
    with pytest.raises(ConfigError, match="has checkpoints already; choose another run_dir"):
        import_checkpoint(tmp_path / "source", saved[0])


def shard(run_dir: Path, _: Mapping[str, Any]) -> int:
    """Save one checkpoint as one of several ranks, with FSDP2 and a sharded optimizer."""
    from torch.distributed.fsdp import fully_shard

    run = Run(run_dir)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 7), nn.BatchNorm1d(7), nn.Linear(7, 2))
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    run.track(model=model, optimizer=optimizer)
    with run:
        model(torch.randn(5, 4)).sum().backward()
        optimizer.step()
        run.step()
    whole = {
        name: each.full_tensor() if hasattr(each, "full_tensor") else each
        for name, each in model.state_dict().items()
    }
    moment = optimizer.state[next(model.parameters())]["exp_avg"].full_tensor()
    if run.mesh.is_rank0:
        torch.save((whole, moment), run_dir / "wanted.pt")
    return run.exit_code


def test_pieces_of_several_ranks_are_joined_by_one_process(tmp_path: Path) -> None:
    launch.run(shard, 2, tmp_path / "run", {})
    wanted, moment = torch.load(tmp_path / "run" / "wanted.pt")
    export_checkpoint(tmp_path / "run", "torch", tmp_path / "out.pt")
    found = torch.load(tmp_path / "out.pt", weights_only=True)
    assert_same(found["model"], wanted)
    assert torch.equal(found["optimizer"]["state"]["0.weight"]["exp_avg"], moment)
    export_checkpoint(tmp_path / "run", "hf", tmp_path / "hf")
    assert_same(load_file(tmp_path / "hf" / "model.safetensors"), wanted)
    export_checkpoint(tmp_path / "run", "dcp", tmp_path / "dcp", only=["model"])
    state = {"model": {name: torch.zeros_like(each) for name, each in wanted.items()}}
    dcp.load(state, checkpoint_id=tmp_path / "dcp", no_dist=True)
    assert_same(state["model"], wanted)
