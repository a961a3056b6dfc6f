"""Image datasets in both layouts of ImageNet, folders and shards; the images are from real photos."""

import importlib.util
import io
import shutil
import tarfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.processes import wait_for
from tests.training.launch import events, run, settings, sha256
from tests.training.parallelism.test_parallelize import distance
from tests.training.s3 import BUCKET, Proxy, s3
from tests.training.test_trainer import NoticeAt
from tests.training.test_trainer import train as train_alone
from trainyard_train.checkpointing.object_store import ObjectStore
from trainyard_train.config import load_config, parse_config
from trainyard_train.config_base import ConfigError
from trainyard_train.data.config import DataConfig
from trainyard_train.data.loader import GlobalOrder, Loader
from trainyard_train.data.pictures import (
    INDEX,
    PictureError,
    Pictures,
    Table,
    decode,
    find,
    load_pictures,
    main,
)

__all__ = ["s3"]
PER_CLASS = 30
SIDE = 32


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    package = importlib.util.find_spec("sklearn")
    assert package
    assert package.submodule_search_locations
    photographs = Path(package.submodule_search_locations[0]) / "datasets" / "images"
    out = tmp_path_factory.mktemp("pictures") / "folders"
    chance = np.random.default_rng(1)
    for name in ("china", "flower"):
        (out / name).mkdir(parents=True)
        with Image.open(photographs / f"{name}.jpg") as photograph:
            for number in range(PER_CLASS):
                x, y = (int(chance.integers(0, size - 60)) for size in photograph.size)
                kind = "png" if number % 10 == 0 else "JPEG"
                photograph.crop((x, y, x + 60, y + 50)).save(out / name / f"{number:03d}.{kind}")
    return out


@pytest.fixture(scope="module")
def shards(folders: Path) -> Path:
    out = folders.with_name("shards")
    assert main(["pack", str(out), str(folders), "--pictures-per-shard", "25"]) == 0
    return out


def source(location: object, **values: Any) -> Pictures:
    return Pictures(str(location), find(str(location)), SIDE, seed=3, **values)


def test_shards_have_every_picture_unchanged_in_the_layout_of_webdataset(folders: Path, shards: Path) -> None:
    assert [path.name for path in sorted(shards.glob("*.tar"))] == [
        f"pictures-00000{n}.tar" for n in range(3)
    ]
    with tarfile.open(shards / "pictures-000001.tar") as shard:
        assert shard.getnames()[:3] == ["00000025.jpeg", "00000025.cls", "00000026.jpeg"]
        picture, of = shard.extractfile("00000025.jpeg"), shard.extractfile("00000025.cls")
        assert picture
        assert of
        assert (picture.read(), of.read()) == ((folders / "china" / "025.JPEG").read_bytes(), b"0")
    assert find(str(shards)).classes == ["china", "flower"]


def test_both_layouts_and_a_store_give_the_same_samples(
    folders: Path, shards: Path, s3: Proxy, tmp_path: Path
) -> None:
    url = f"s3://{BUCKET}/{tmp_path.name}"
    for path in shards.iterdir():
        ObjectStore(url).put(path.name, path.read_bytes())
    near, packed, far = source(folders), source(shards, workers=3), source(url, workers=4)
    chosen = torch.tensor([0, 59, 24, 25, 31])
    for at in (None, 1000):
        expected = near.take(chosen, at)
        assert expected.inputs.shape == (5, 3, SIDE, SIDE)
        assert expected.targets.tolist() == [0, 1, 0, 0, 1]
        for other in (packed, far):
            assert torch.equal(other.take(chosen, at).inputs, expected.inputs)


def test_an_index_is_made_for_others_shards_in_a_store_too(shards: Path, s3: Proxy, tmp_path: Path) -> None:
    url = f"s3://{BUCKET}/{tmp_path.name}"
    for path in shards.glob("*.tar"):
        ObjectStore(url).put(path.name, path.read_bytes())
    index = "python -m trainyard_train.data.pictures index"
    with pytest.raises(PictureError, match=f"create an index: {index} {url}"):
        find(url)
    assert main(["index", url]) == 0
    assert np.array_equal(find(url).records, find(str(shards)).records)
    assert find(url).classes == ["0", "1"]


def test_the_augmentation_of_a_picture_depends_only_on_its_position_in_the_order(shards: Path) -> None:
    pictures, order = source(shards), GlobalOrder(2 * PER_CLASS, seed=1)

    def batch(rank: int, ranks: int) -> torch.Tensor:
        return Loader(pictures, order, 12 // ranks, rank, ranks).batch(120).inputs

    whole = batch(0, 1)
    for ranks in (2, 4):
        assert torch.equal(torch.cat([batch(rank, ranks) for rank in range(ranks)]), whole)
    later = Loader(pictures, order, 12, 0, 1).batch(120 + 2 * PER_CLASS).inputs
    assert not torch.equal(later, whole)
    plain = pictures.take(torch.tensor([5])).inputs
    assert not torch.equal(pictures.take(torch.tensor([5]), 5).inputs, plain)
    assert torch.equal(pictures.take(torch.tensor([5])).inputs, plain)


def picture_of(paint: Callable[[int, int], int], size: tuple[int, int], mode: str = "L") -> bytes:
    image = Image.new("L", size)
    image.putdata([paint(x, y) for y in range(size[1]) for x in range(size[0])])
    out = io.BytesIO()
    image.convert(mode).save(out, "PNG")
    return out.getvalue()


def test_without_augmentation_a_picture_is_cropped_to_its_centre_with_three_channels() -> None:
    data = picture_of(lambda x, y: x, (200, 100), "LA")
    pixels = decode(data, 10, None)
    assert pixels.shape == (10, 10, 3)
    assert np.allclose(pixels[5, :, 0], np.linspace(100 - 43.75 + 4.375, 100 + 43.75 - 4.375, 10), atol=1.5)


def test_samples_are_normalised_as_imagenets_pictures_are(folders: Path) -> None:
    sample = source(folders).take(torch.tensor([0])).inputs[0]
    pixels = decode((folders / "china" / "000.png").read_bytes(), SIDE, None)
    expected = (pixels / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    assert np.allclose(sample.permute(1, 2, 0).numpy(), expected, atol=1e-5)


def test_augmentation_mirrors_half_of_the_pictures_and_crops_parts_of_all_sizes() -> None:
    data = picture_of(lambda x, y: x, (200, 200))
    cuts = [decode(data, 10, np.random.default_rng([3, at]))[5, :, 0].astype(int) for at in range(200)]
    mirrored = sum(cut[0] > cut[-1] for cut in cuts)
    spans = [abs(int(cut[0]) - int(cut[-1])) for cut in cuts]
    assert 70 < mirrored < 130
    assert min(spans) < 80
    assert max(spans) > 150


def test_a_large_jpeg_is_cropped_where_the_same_png_is(folders: Path) -> None:
    with Image.open(folders / "china" / "001.JPEG") as small:
        large = small.resize((1200, 1000))
    outs = []
    for kind in ("JPEG", "PNG"):
        out = io.BytesIO()
        large.save(out, kind)
        outs.append(decode(out.getvalue(), SIDE, np.random.default_rng(8)).astype(int))
    assert np.abs(outs[0] - outs[1]).mean() < 6


RESNET: dict[str, Any] = {
    "steps": 6,
    "model.name": "resnet",
    "model.depth": 18,
    "model.hidden": 4,
    "model.dropout": 0,
    "data.name": "pictures",
    "data.side": 32,
    "data.batch_size_per_rank": 16,
    "optim.lr": 0.02,
    "checkpoint.every_steps": 1,
    "checkpoint.keep_last": 50,
}


def resnet(run_dir: Path, location: Path, **values: Any) -> list[str]:
    return settings(run_dir, **RESNET | {"data.path": location, "model.hidden": 4} | values)


def train(arguments: list[str], *notice: NoticeAt) -> bool:
    return train_alone(load_config(None, arguments[1::2]), *notice)


@pytest.mark.parametrize("depth", [18, pytest.param(50, marks=pytest.mark.ranks)])
def test_a_resnet_resumes_within_an_epoch(tmp_path: Path, folders: Path, shards: Path, depth: int) -> None:
    values = {"model.depth": depth, "model.dropout": 0.1, "data.batch_size_per_rank": 8, "steps": 4}
    train(resnet(tmp_path / "whole", folders, **values))
    assert not train(resnet(tmp_path / "parted", folders, **values), NoticeAt(2))
    assert train(resnet(tmp_path / "parted", shards, **values))
    assert sha256(tmp_path / "parted") == sha256(tmp_path / "whole")


@pytest.mark.ranks
def test_a_resnet_learns_and_two_ranks_equal_one(tmp_path: Path, shards: Path) -> None:
    values = {"steps": 50, "model.hidden": 16, "data.side": 48, "optim.lr": 0.01, "optim.momentum": 0.5}
    train(resnet(tmp_path / "alone", shards, **values))
    run(2, resnet(tmp_path / "pair", shards, **values | {"data.batch_size_per_rank": 8}))
    assert distance(tmp_path / "alone", tmp_path / "pair", 1) < 1e-6
    assert distance(tmp_path / "alone", tmp_path / "pair", 50) < 1e-3
    assert events(tmp_path / "alone", "evaluation")[-1]["accuracy"] > 0.75


def test_separate_pictures_are_held_out_under_the_same_classes(folders: Path, tmp_path: Path) -> None:
    few = tmp_path / "val"
    shutil.copytree(folders / "flower", few / "flower")
    config = DataConfig(name="pictures", path=str(folders), held_out_path=str(few), side=SIDE)
    data = load_pictures(config, seed=1)
    assert (len(data.train), len(data.held_out), data.num_classes) == (2 * PER_CLASS, PER_CLASS, 2)
    assert set(data.held_out.take(torch.arange(3)).targets.tolist()) == {1}
    (few / "flower").rename(few / "tree")
    with pytest.raises(PictureError, match=r"got class 'tree'; allowed: those of data\.path"):
        load_pictures(config, seed=1)


def test_a_part_is_held_out_without_overlap(folders: Path) -> None:
    data = load_pictures(DataConfig(name="pictures", path=str(folders), held_out=0.25, side=SIDE), seed=1)
    assert isinstance(data.train, Pictures)
    assert isinstance(data.held_out, Pictures)
    rows = [
        pictures.chosen.tolist() for pictures in (data.train, data.held_out) if pictures.chosen is not None
    ]
    assert len(rows[1]) == 15
    assert sorted(rows[0] + rows[1]) == list(range(2 * PER_CLASS))


def test_what_is_wrong_with_pictures_is_named(
    folders: Path, shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    harmed = shutil.copytree(folders, tmp_path / "folders")
    victim = harmed / "china" / "001.JPEG"
    victim.write_bytes(victim.read_bytes()[:500])
    with pytest.raises(PictureError, match=r"china/001\.JPEG: cannot be decoded: .*; replace it"):
        source(harmed).take(torch.tensor([1]))
    packed = shutil.copytree(shards, tmp_path / "shards")
    (packed / "pictures-000000.tar").unlink()
    (packed / "pictures-000001.tar").write_bytes(b"123")
    config = DataConfig(name="pictures", path=str(packed))
    with pytest.raises(PictureError, match=r"000000\.tar is missing(?s:.)*000001\.tar has 3 bytes; .* again"):
        load_pictures(config, 1)
    (packed / INDEX).write_bytes(b"?")
    index = "python -m trainyard_train.data.pictures index"
    with pytest.raises(PictureError, match=f"recreate it: {index} {packed}"):
        load_pictures(config, 1)
    (packed / INDEX).unlink()
    assert main(["index", str(packed)]) == 2
    assert "pictures-000001.tar: " in capsys.readouterr().err
    assert main(["pack", str(shards), str(folders)]) == 2
    assert "has shards already" in capsys.readouterr().err
    assert main(["pack", str(tmp_path / "out"), str(tmp_path / "nothing")]) == 2
    assert "no <class>/….jpg" in capsys.readouterr().err


def test_an_index_that_is_cut_short_or_altered_anywhere_is_named(shards: Path, tmp_path: Path) -> None:
    packed = shutil.copytree(shards, tmp_path / "shards")
    data, table = (packed / INDEX).read_bytes(), find(str(packed))
    for harmed in (b"", data[:-1], data[: len(data) // 2], data.replace(b"PK\1\2", b"PK\1\3")):
        (packed / INDEX).write_bytes(harmed)
        with pytest.raises(PictureError, match=f"{INDEX} cannot be read: .*; recreate it: python -m"):
            find(str(packed))
    for at in range(0, len(data), 7):
        try:
            found = Table.decode(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        except ValueError:
            continue
        assert found.encode() == table.encode(), f"byte {at} was altered, and nobody saw it"


@pytest.mark.parametrize(
    "change",
    [{"files": ["a.tar"]}, {"classes": ["a"]}, {"sizes": [1]}, {"records": np.zeros((3, 2), dtype=np.int64)}],
)
def test_an_index_that_points_at_nothing_is_refused(shards: Path, change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^(records|sizes): got .*; allowed: "):
        Table.decode(replace(find(str(shards)), **change).encode())


def test_a_closed_data_set_has_no_thread(shards: Path) -> None:
    before = threading.active_count()
    data = load_pictures(DataConfig(name="pictures", path=str(shards), side=SIDE), 1)
    for part in (data.train, data.held_out):
        part.take(torch.tensor([0, 1]))
    assert threading.active_count() > before
    data.close()
    wait_for(lambda: threading.active_count() == before)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model": {"name": "resnet"}}, "data.name: got 'digits' with model resnet; allowed: pictures"),
        ({"data": {"name": "pictures", "path": "/x"}}, "got 'pictures' with model mlp; allowed: digits"),
        ({"model": {"name": "resnet"}, "data": {"name": "pictures"}}, "data.path: got ''"),
        ({"model": {"name": "resnet", "depth": 20}}, "model.depth: got 20"),
        ({"data": {"held_out_path": "/x"}}, "data.held_out_path: set with data digits"),
    ],
)
def test_settings_that_do_not_fit_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config({"run_dir": "/x", **values})
    assert message in str(caught.value)
