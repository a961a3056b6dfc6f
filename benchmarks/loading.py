"""Pictures per second from shards on a disk, decoded and cropped by chance, against WebDataset.

Both read the same shards and decode with the same function, by two threads or two processes; what differs
is how a sample is found, shuffled and handed over. WebDataset is not of the project's environment: put it
on the path (`uv pip install --target FOLDER --no-deps webdataset braceexpand`, `PYTHONPATH=FOLDER`).
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from benchmarks.figures import Figure, Samples, alternating
from training.data import GlobalOrder, Loader
from training.pictures import INDEX, Pictures, decode, find, pack

COUNT, SIDE, BATCH, WORKERS, ROUNDS = 768, 224, 32, 2, 3


def measure() -> list[Figure]:
    """Read epoch after epoch with both, in turn; the first of each starts threads and processes."""
    if importlib.util.find_spec("webdataset") is None:
        raise SystemExit(
            f"loading: webdataset is not installed; {str(__doc__).rpartition('environment: ')[2]}"
        )
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        shards = _make_shards(Path(folder))
        ours, peer = _ours(shards), _peer(shards)
        if (one := ours()[1]) != (other := peer()[1]):
            raise ValueError(f"classes of an epoch: {one} in one arm, {other} in the other")
        taken = alternating(lambda: ours()[0], lambda: peer()[0], ROUNDS)
    ratios = [one / other for one, other in zip(*taken, strict=True)]
    return [
        Figure(
            f"loading a picture of 500 × 400 from shards (median of paired ratios {median(ratios):.2f})",
            Samples("trainyard", "ms", taken[0]),
            at_most=1.0,
            peer=Samples("WebDataset", "ms", taken[1]),
        )
    ]


def _make_shards(folder: Path) -> Path:
    """Parts of the two photographs that come with scikit-learn, as JPEGs."""
    from PIL import Image

    package = importlib.util.find_spec("sklearn")
    assert package is not None
    assert package.submodule_search_locations
    photographs = Path(package.submodule_search_locations[0]) / "datasets" / "images"
    chance = np.random.default_rng(1)
    for name in ("china", "flower"):
        (folder / "folders" / name).mkdir(parents=True)
        with Image.open(photographs / f"{name}.jpg") as photograph:
            for number in range(COUNT // 2):
                x, y = int(chance.integers(0, 140)), int(chance.integers(0, 27))
                photograph.crop((x, y, x + 500, y + 400)).save(folder / "folders" / name / f"{number}.jpg")
    pack(folder / "shards", str(folder / "folders"), 128)
    return folder / "shards"


def _ours(shards: Path) -> Callable[[], tuple[float, list[int]]]:
    pictures = Pictures(str(shards), find(str(shards)), SIDE, seed=1, workers=WORKERS)
    loader = Loader(pictures, GlobalOrder(COUNT, seed=1), BATCH, 0, 1)
    cursor = 0

    def epoch() -> Iterator[torch.Tensor]:
        nonlocal cursor
        for _ in range(COUNT // BATCH):
            yield loader.batch(cursor).targets
            cursor += BATCH

    return lambda: _timed(epoch())


def _peer(shards: Path) -> Callable[[], tuple[float, list[int]]]:
    import webdataset

    urls = sorted(str(path) for path in shards.iterdir() if path.name != INDEX)
    samples = webdataset.WebDataset(urls, shardshuffle=len(urls)).shuffle(COUNT)
    tuples = samples.to_tuple("jpg", "cls").map_tuple(_picture, int).batched(BATCH, partial=True)
    loader: DataLoader[Any] = DataLoader(
        tuples, batch_size=None, num_workers=WORKERS, persistent_workers=True, prefetch_factor=2
    )

    def epoch() -> Iterator[torch.Tensor]:
        for _, targets in loader:
            yield torch.as_tensor(targets)

    return lambda: _timed(epoch())


def _picture(data: bytes) -> torch.Tensor:
    """As `Pictures.take` does, for one."""
    pixels = torch.from_numpy(decode(data, SIDE, np.random.default_rng()).copy())
    return pixels.permute(2, 0, 1).float().div_(255).sub_(_MEAN).div_(_DEVIATION)


_MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
_DEVIATION = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


def _timed(batches: Iterator[torch.Tensor]) -> tuple[float, list[int]]:
    """Milliseconds per sample, and how many samples of each class there were."""
    begin = time.monotonic()
    targets = torch.cat(list(batches))
    return 1000 * (time.monotonic() - begin) / len(targets), torch.bincount(targets).tolist()
