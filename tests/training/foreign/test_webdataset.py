"""A ResNet of others on shards of WebDataset with `Run`, as in docs/library.md, killed in mid-epoch."""

import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.training.foreign.programs import PACKAGES, environment
from tests.training.launch import events

PROGRAM = """
import os, random, signal, sys
from pathlib import Path

import numpy
import torch
import webdataset
from torch.utils.data import DataLoader
from transformers import ResNetConfig, ResNetForImageClassification
from trainyard_train import Run


def tensor_of(picture):
    if random.random() < 0.5:
        picture = picture.transpose(0)
    return torch.from_numpy(numpy.array(picture)).permute(2, 0, 1) / 255


run = Run("run", every_steps=5)
torch.manual_seed(1)
random.seed(1)
config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=2, layer_type="basic")
model = ResNetForImageClassification(config)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
samples = webdataset.WebDataset([f"shard-{number}.tar" for number in range(3)], shardshuffle=False)
samples = samples.shuffle(16, rng=random).decode("pil").to_tuple("jpg", "cls")
samples = samples.map_tuple(tensor_of, int).batched(4)
loader = run.batches(DataLoader(samples, batch_size=None))
run.track(model=model, optimizer=optimizer)
seen = []
with run:
    for epoch in run.epochs(3):
        for pictures, classes in loader:
            loss = model(pictures, labels=classes).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen = [*run.restored("seen", seen), round(pictures.sum().item(), 2)]
            run.step(loss, seen=seen)
            if sys.argv[1:] == ["--kill"] and run.steps == 17:
                run.save()
                os.kill(os.getpid(), signal.SIGKILL)
Path("seen.json").write_text(str(seen))
torch.save([each.detach() for each in model.parameters()], "weights.pt")
"""


@pytest.mark.skipif(not PACKAGES.is_dir(), reason="no WebDataset here: run make peers")
def test_a_resnet_on_webdatasets_shards_resumes_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    chance = np.random.default_rng(1)
    for name in ("calm", "killed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "program.py").write_text(PROGRAM)
    for shard in range(3):
        with tarfile.open(tmp_path / "calm" / f"shard-{shard}.tar", "w") as file:
            for number in range(16):
                _add(file, f"{number:03}.jpg", _picture(chance.integers(0, 256, (16, 16, 3), dtype=np.uint8)))
                _add(file, f"{number:03}.cls", str(number % 2).encode())
        (tmp_path / "killed" / f"shard-{shard}.tar").symlink_to(tmp_path / "calm" / f"shard-{shard}.tar")
    for name, *arguments in (("calm",), ("killed", "--kill"), ("killed",)):
        command = [sys.executable, "program.py", *arguments]
        found = subprocess.run(command, cwd=tmp_path / name, env=environment(tmp_path), check=False)
        assert found.returncode == (-9 if arguments else 0)
    calm, killed = tmp_path / "calm", tmp_path / "killed"
    assert [each["step"] for each in events(killed / "run", "resumed")] == [17]
    assert (killed / "weights.pt").read_bytes() == (calm / "weights.pt").read_bytes()
    seen = json.loads((calm / "seen.json").read_text())
    assert json.loads((killed / "seen.json").read_text()) == seen
    assert len({tuple(seen[at : at + 12]) for at in (0, 12, 24)}) == 3, "each epoch has another order"


def _add(file: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    file.addfile(entry, io.BytesIO(data))


def _picture(values: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(values).save(file, "JPEG")
    return file.getvalue()
