"""Text datasets: sharded, streamed and trained on; the text is the source of Python's standard library."""

import json
import math
import shutil
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.training.launch import events, run, settings, sha256
from tests.training.parallelism.test_parallelize import distance
from tests.training.s3 import BUCKET, Proxy, s3
from tests.training.test_trainer import NoticeAt
from tests.training.test_trainer import train as train_alone
from trainyard_train.checkpointing.finding import MismatchError
from trainyard_train.config import load_config, parse_config
from trainyard_train.config_base import ConfigError
from trainyard_train.data.loader import GlobalOrder, Loader
from trainyard_train.data.text import (
    INDEX,
    ShardError,
    TokenShards,
    write_tokens,
)

__all__ = ["s3"]
STDLIB = Path(sysconfig.get_path("stdlib"))
FILES = sorted(STDLIB.glob("[a-d]*.py"))


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("text") / "shards"
    write_bytes(out, [path.read_text() for path in FILES], 200_000)
    return out


def write_bytes(out: Path, texts: Sequence[str], tokens_per_shard: int) -> None:
    """Write a token for each byte, and 256 at the end of a document."""
    documents = (np.append(np.frombuffer(text.encode(), np.uint8), np.uint16(256)) for text in texts)
    write_tokens(out, documents, 257, tokens_per_shard)


def all_tokens(folder: Path) -> np.ndarray[Any, Any]:
    names = [shard["name"] for shard in json.loads((folder / INDEX).read_text())["shards"]]
    return np.concatenate([np.fromfile(folder / name, dtype=np.uint16) for name in names])


def test_shards_have_every_document_unchanged(shards: Path) -> None:
    sizes = [shard["tokens"] for shard in json.loads((shards / INDEX).read_text())["shards"]]
    assert len(sizes) > 3
    assert set(sizes[:-1]) == {200000}
    assert all_tokens(shards).astype(np.uint8).tobytes() == b"".join(
        path.read_bytes() + b"\0" for path in FILES
    )


def test_an_epoch_reads_every_token_once_and_targets_follow_their_inputs(shards: Path) -> None:
    source = TokenShards(str(shards), context=100)
    everything = source.take(torch.arange(len(source)))
    tokens = torch.from_numpy(all_tokens(shards).astype(np.int64))
    assert torch.equal(everything.inputs.flatten(), tokens[: len(source) * 100])
    assert torch.equal(everything.targets.flatten(), tokens[1 : len(source) * 100 + 1])
    later = source.part(3, 7)
    assert len(later) == 4
    assert torch.equal(later.take(torch.tensor([0])).inputs, everything.inputs[3:4])


def test_a_store_gives_the_same_by_a_request_per_shard(shards: Path, s3: Proxy, tmp_path: Path) -> None:
    from trainyard_train.checkpointing.object_store import ObjectStore

    url = f"s3://{BUCKET}/{tmp_path.name}"
    store = ObjectStore(url)
    for path in shards.iterdir():
        store.put(path.name, path.read_bytes())
    near, far = TokenShards(str(shards), 64), TokenShards(url, 64)
    far.check()
    s3.reset()
    chosen = torch.tensor([0, 3124, 3125, len(near) - 1])  # the second ends in the second shard
    assert torch.equal(far.take(chosen).inputs, near.take(chosen).inputs)
    assert len(s3.requests) == 3, "two windows of the first shard, one of both, one of the last"
    order = GlobalOrder(len(near), seed=1)
    loaders = [Loader(source, order, 4, data_rank=1, data_size=2) for source in (near, far)]
    for cursor in (0, 8, 16, 8, 24):  # forward, and back to where a resume begins
        one, other = (loader.batch(cursor) for loader in loaders)
        assert torch.equal(one.targets, other.targets)


def test_a_shard_that_is_truncated_while_it_is_read_is_named(shards: Path, tmp_path: Path) -> None:
    copy = tmp_path / "shards"
    shutil.copytree(shards, copy)
    source = TokenShards(str(copy), 64)
    source.check()
    with (copy / "shard-00000.bin").open("r+b") as shard:
        shard.truncate(131)
    assert len(source.take(torch.tensor([0]))) == 1
    with pytest.raises(
        ShardError, match=r"shard-00000\.bin ends at byte 131; expected: 258 or more; .*: copy it again"
    ):
        source.take(torch.tensor([0, 1]))


@pytest.mark.parametrize(
    ("fault", "advice"), [("403", "check the credentials"), ("hang", r"the store hangs: .* timeouts\.store")]
)
def test_a_store_that_fails_while_text_is_read_ends_the_run_and_it_can_resume(
    shards: Path, s3: Proxy, tmp_path: Path, fault: str, advice: str
) -> None:
    from trainyard_train.checkpointing.object_store import ObjectStore, StoreError

    s3.reset()
    url = f"s3://{BUCKET}/{tmp_path.name}"
    for path in shards.iterdir():
        ObjectStore(url).put(path.name, path.read_bytes())
    train(gpt(tmp_path / "whole", shards))
    s3.reset(lambda verb, path, number: fault if number > 40 and "shard-" in path else "")
    with pytest.raises(StoreError, match=rf"get .*/shard-.*; {advice}"):
        train([*gpt(tmp_path / "parted", url), "--set", f"timeouts.store={6 if fault == 'hang' else 60}"])
    s3.reset()
    assert train(gpt(tmp_path / "parted", url))
    assert events(tmp_path / "parted", "resumed")[0]["step"] > 0
    assert sha256(tmp_path / "parted") == sha256(tmp_path / "whole")


GPT: dict[str, Any] = {
    "steps": 12,
    "model.name": "gpt",
    "model.hidden": 32,
    "model.layers": 4,
    "model.heads": 4,
    "model.context": 32,
    "model.dropout": 0,
    "data.name": "text",
    "data.held_out": 0.01,
    "data.batch_size_per_rank": 16,
    "optim.lr": 0.1,
    "checkpoint.every_steps": 1,
    "checkpoint.keep_last": 50,
    "evaluate_samples": 256,
}


def gpt(run_dir: Path, shards: Path | str, **values: Any) -> list[str]:
    return settings(run_dir, **GPT | {"data.path": shards, "model.hidden": 32} | values)


def train(arguments: list[str], *notice: NoticeAt) -> bool:
    return train_alone(load_config(None, arguments[1::2]), *notice)


def test_a_gpt_learns_to_write_python_and_resumes_to_the_bit(tmp_path: Path, shards: Path) -> None:
    values = {"steps": 40, "optim.name": "adamw", "optim.lr": 0.005, "model.layers": 2, "model.dropout": 0.1}
    train(gpt(tmp_path / "whole", shards, **values))
    losses = [line["loss"] for line in events(tmp_path / "whole", "step")]
    assert losses[0] == pytest.approx(math.log(257), rel=0.02), "it begins with no idea"
    assert losses[-1] < 3.2, "and soon knows which bytes are frequent"
    assert events(tmp_path / "whole", "evaluation")[-1]["loss"] < 3.4
    assert not train(gpt(tmp_path / "parted", shards, **values), NoticeAt(17))
    assert train(gpt(tmp_path / "parted", shards, **values))
    assert sha256(tmp_path / "parted") == sha256(tmp_path / "whole")


def test_text_that_has_grown_is_refused_before_a_step_and_checkpoints_are_retained(tmp_path: Path) -> None:
    location, values = tmp_path / "text", {"steps": 6, "model.layers": 1}
    for tokens in (16_000, 35_000):
        shutil.rmtree(location, ignore_errors=True)
        write_bytes(location, ["x" * (tokens - 1)], 10_000)
        if tokens == 16_000:
            assert not train(gpt(tmp_path / "run", location, **values), NoticeAt(3))
    with pytest.raises(
        MismatchError,
        match=r"dataset: the checkpoint has \{'samples': 495, .*, the present data \{'samples': 1083,"
        r".*: set data\.path to the previous data, or start a new run",
    ):
        train(gpt(tmp_path / "run", location, **values))
    assert events(tmp_path / "run", "step")[-1]["step"] == 4
    assert (tmp_path / "run" / "checkpoints" / "step-00000004").is_dir()


MESHES: dict[str, dict[str, Any]] = {
    "fsdp": {"strategy": "fsdp"},
    "ddp": {},
}


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(values, id=name, marks=pytest.mark.ranks if name == "fsdp" else pytest.mark.soak)
        for name, values in MESHES.items()
    ],
)
def test_a_gpt_on_any_mesh_equals_one_process(tmp_path: Path, shards: Path, values: dict[str, Any]) -> None:
    train(gpt(tmp_path / "alone", shards, steps=20))
    run(4, gpt(tmp_path / "mesh", shards, **{"steps": 20, "data.batch_size_per_rank": 4} | values))
    assert distance(tmp_path / "alone", tmp_path / "mesh", 1) < 1e-6
    assert distance(tmp_path / "alone", tmp_path / "mesh", 20) < 1e-3
    evaluated = [events(tmp_path / name, "evaluation")[-1]["loss"] for name in ("alone", "mesh")]
    assert evaluated[0] == pytest.approx(evaluated[1], rel=1e-3)


def harmed(shards: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(shards, tmp_path / "harmed"))


def test_every_wrong_shard_is_named(shards: Path, tmp_path: Path) -> None:
    folder = harmed(shards, tmp_path)
    (folder / "shard-00000.bin").unlink()
    (folder / "shard-00001.bin").write_bytes(b"123")
    with pytest.raises(ShardError) as caught:
        TokenShards(str(folder), 32).check()
    text = str(caught.value)
    assert f"shard-00000.bin is missing; {INDEX} says 400000; copy it again" in text
    assert "shard-00001.bin has 3 bytes" in text


def test_wrong_tokens_too_little_text_and_no_index_are_reported(shards: Path, tmp_path: Path) -> None:
    folder = harmed(shards, tmp_path)
    tokens = np.fromfile(folder / "shard-00000.bin", dtype=np.uint16)
    tokens[5] = 50_000
    tokens.tofile(folder / "shard-00000.bin")
    with pytest.raises(ShardError, match="got token 50000; allowed: below 257"):
        TokenShards(str(folder), 32).take(torch.tensor([0]))
    with pytest.raises(ShardError, match=r"allowed: more than model\.context"):
        TokenShards(str(folder), 10**9).check()
    (folder / INDEX).write_text("{")
    with pytest.raises(ShardError, match="recreate the shards"):
        TokenShards(str(folder), 32).check()
    (folder / INDEX).unlink()
    with pytest.raises(ShardError, match="create shards with write_tokens"):
        TokenShards(str(folder), 32).check()


def test_existing_shards_are_not_overwritten_and_no_document_is_an_error(
    shards: Path, tmp_path: Path
) -> None:
    with pytest.raises(ShardError, match="has shards already"):
        write_bytes(shards, ["x"], 10)
    with pytest.raises(ShardError, match="no document was found"):
        write_bytes(tmp_path / "none", [], 10)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model": {"name": "gpt"}}, "data.name: got 'digits' with model gpt; allowed: text"),
        ({"data": {"name": "text", "path": "/x"}}, "data.name: got 'text' with model mlp"),
        (
            {"model": {"name": "gpt"}, "data": {"name": "text"}},
            "data.path: got '' with data.name text; allowed: none with digits",
        ),
        (
            {"model": {"name": "gpt", "heads": 3}},
            "model.heads: got 3; allowed: a divisor of model.hidden (64)",
        ),
    ],
)
def test_settings_that_do_not_fit_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config({"run_dir": "/tmp/run", **values})
    assert message in "\n".join(caught.value.problems)


LARGE = 128_256
"""Size of a large vocabulary, more than uint16 can represent."""


def large_tokens(folder: Path) -> np.ndarray[Any, Any]:
    """Write shards of uint32 to a folder; return all tokens."""
    tokens = np.random.default_rng(3).integers(0, LARGE, 1000)
    parts = np.split(tokens, [100, 350, 351])
    assert write_tokens(folder, parts, LARGE, tokens_per_shard=300) == 1000
    return tokens


def test_a_large_vocabulary_is_stored_in_uint32_and_read_across_shards(tmp_path: Path) -> None:
    tokens = large_tokens(tmp_path)
    index = json.loads((tmp_path / INDEX).read_text())
    assert index["dtype"] == "uint32"
    assert [shard["tokens"] for shard in index["shards"]] == [300, 300, 300, 100]
    assert (tmp_path / "shard-00000.bin").stat().st_size == 1200
    shards = TokenShards(str(tmp_path), context=7)
    shards.check()
    samples = shards.take(torch.arange(len(shards)))
    assert samples.inputs.flatten().tolist() == tokens[: 7 * len(shards)].tolist()
    assert samples.targets.flatten().tolist() == tokens[1 : 7 * len(shards) + 1].tolist()
    assert samples.inputs.max() > 1 << 16


def test_shards_without_a_type_are_of_uint16(shards: Path, tmp_path: Path) -> None:
    shutil.copytree(shards, tmp_path / "old")
    index = json.loads((shards / INDEX).read_text())
    assert index.pop("dtype") == "uint16"
    (tmp_path / "old" / INDEX).write_text(json.dumps(index))
    old, new = (TokenShards(str(location), context=16) for location in (tmp_path / "old", shards))
    old.check()
    assert torch.equal(old.take(torch.tensor([3, 9])).inputs, new.take(torch.tensor([3, 9])).inputs)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"dtype": "uint16"}, r"dtype: got uint16 for a vocabulary of 128256; allowed"),
        ({"dtype": "uint16", "vocabulary": 9}, r"0\.bin has 1200 bytes; .* says 600; .*correct dtype"),
        ({"dtype": "int8"}, r"index\.json: dtype: got 'int8'; allowed: uint16 or uint32"),
    ],
)
def test_tokens_of_another_size_are_refused(tmp_path: Path, changed: dict[str, object], message: str) -> None:
    large_tokens(tmp_path)
    index = json.loads((tmp_path / INDEX).read_text())
    (tmp_path / INDEX).write_text(json.dumps({**index, **changed}))
    with pytest.raises(ShardError, match=message):
        TokenShards(str(tmp_path), context=7).check()


@pytest.mark.parametrize("wrong", [LARGE, -1])
def test_a_token_that_is_not_in_the_vocabulary_is_not_written(tmp_path: Path, wrong: int) -> None:
    with pytest.raises(ShardError, match=f"got token {wrong}; allowed: 0 to 128255"):
        write_tokens(tmp_path, [np.array([5, wrong])], LARGE)
    assert not (tmp_path / INDEX).exists()
