"""Third-party training programs from wheels, each patched with our callback, run without a network."""

import hashlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.paths import REPOSITORY
from tests.training.foreign.models import make_texts
from trainyard_train.elasticity.config import GRACE_VARIABLE

PACKAGES = REPOSITORY / ".trainyard" / "peers"
"""Made by `make peers`."""
PATCHES = Path(__file__).parent / "patches"
TWO_RANKS = (
    "-m",
    "torch.distributed.run",
    "--nproc-per-node=2",
    "--rdzv-backend=c10d",
    "--rdzv-endpoint=localhost:0",
)
"""Arguments of Python that start a program on two ranks."""
TEXTS = 52
"""Number of texts, with which every program takes 13 steps in each of two epochs."""


@dataclass(frozen=True)
class WheelProgram:
    """A program that is one file of a wheel."""

    file: str
    wheel: str
    version: str
    sha256: str
    prepare: Callable[[Path], Sequence[str]]
    """Makes what it reads in a folder; returns its arguments but the last, the folder that it writes to."""

    @property
    def patch(self) -> Path:
        return PATCHES / Path(self.file).with_suffix(".patch").name

    def patched(self, folder: Path) -> Path:
        """Write a copy with our patch to a folder; return its path."""
        original = PACKAGES / self.file
        copy = folder / original.name
        copy.write_bytes(original.read_bytes())
        command = ["git", "apply", "--unidiff-zero", "-p1", str(self.patch)]
        subprocess.run(command, cwd=folder, check=True, env=_outside_of_repositories())
        return copy

    def original_sha256(self) -> str:
        return hashlib.sha256((PACKAGES / self.file).read_bytes()).hexdigest()


def _outside_of_repositories() -> dict[str, str]:
    return {**os.environ, "GIT_CEILING_DIRECTORIES": "/"}


def start(
    program: Path, arguments: Sequence[str], log: Path, launcher: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    """Start a program in the folder that it was copied to."""
    command = [sys.executable, *launcher, program.name, *arguments]
    with log.open("ab") as output:
        variables = environment(program.parent)
        return subprocess.Popen(command, cwd=program.parent, env=variables, stdout=output, stderr=output)


def environment(folder: Path) -> dict[str, str]:
    """Return the environment variables of a program."""
    return {
        **os.environ,
        "PYTHONPATH": f"{REPOSITORY}:{PACKAGES}",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_EVALUATE_OFFLINE": "1",
        "HF_HOME": str(folder / "cache"),
        "OMP_NUM_THREADS": "1",
        GRACE_VARIABLE: "120",  # else a save on a preemption notice has ten seconds
        "ACCELERATE_USE_CPU": "true",
    }


def _make_model(folder: Path) -> None:
    command = [sys.executable, "-m", "tests.training.foreign.models", "model"]
    subprocess.run(command, cwd=folder, check=True, env=environment(folder), capture_output=True)


_COMMON = [
    "--save_strategy=no",
    "--report_to=none",
    "--logging_steps=1",
    "--per_device_train_batch_size=4",
    "--num_train_epochs=2",
    "--learning_rate=0.01",
    "--use_cpu=True",
    "--bf16=False",
    "--disable_tqdm=True",
    "--max_length=32",
]


def _for_sft(folder: Path) -> list[str]:
    _make_model(folder)
    make_texts(folder / "texts", TEXTS)
    return ["--model_name_or_path=model", "--dataset_name=texts", *_COMMON]


def _for_dpo(folder: Path) -> list[str]:
    _make_model(folder)
    make_texts(folder / "texts", TEXTS)
    texts = folder / "texts" / "train.jsonl"
    lines = [json.loads(line)["text"].split() for line in texts.read_text().splitlines()]
    pairs = [
        {"prompt": " ".join(words[:4]), "chosen": " ".join(words[4:8]), "rejected": " ".join(words[8:])}
        for words in lines
    ]
    texts.write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    return ["--model_name_or_path=model", "--dataset_name=texts", *_COMMON]


_GLUE = """---
configs:
- config_name: mrpc
  data_files:
  - {split: train, path: train.jsonl}
  - {split: validation, path: validation.jsonl}
---
"""
_METRIC = """
import datasets
import evaluate
class Accuracy(evaluate.Metric):
    def _info(self):
        number = datasets.Value("int64")
        numbers = datasets.Features({"predictions": number, "references": number})
        return evaluate.MetricInfo(description="", citation="", inputs_description="", features=numbers)
    def _compute(self, predictions, references):
        return {"accuracy": sum(map(int.__eq__, predictions, references)) / len(references)}
"""


def _for_performance(folder: Path) -> list[str]:
    _make_model(folder)
    data, metric = folder / "nyu-mll" / "glue", folder / "glue"
    data.mkdir(parents=True)
    metric.mkdir()
    (data / "README.md").write_text(_GLUE)
    (metric / "glue.py").write_text(_METRIC)
    chance = random.Random(4)
    for name, number in (("train", 4 * TEXTS), ("validation", 32)):
        lines = [
            {
                "sentence1": " ".join(f"word{chance.randrange(47)}" for _ in range(5)),
                "sentence2": " ".join(f"word{chance.randrange(47)}" for _ in range(5)),
                "label": chance.randrange(2),
                "idx": index,
            }
            for index in range(number)
        ]
        (data / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return ["--model_name_or_path=model", "--num_epochs=2"]


def _for_transformer(folder: Path) -> list[str]:
    chance = random.Random(4)
    (folder / "data").mkdir()
    text = "\n".join(" ".join(f"word{chance.randrange(47)}" for _ in range(12)) for _ in range(74))
    (folder / "data" / "wikitext-2.txt").write_text(text)
    # Its bindings are among our packages, and Lightning expects an ImportError where MPI itself is not.
    (folder / "mpi4py.py").write_text('raise ImportError("there is no MPI")')
    return []


PROGRAMS = [
    WheelProgram(
        "trl/scripts/sft.py",
        "trl",
        "1.16.0",
        "310f4eb5f750a8f2f1ca9ef86235455a6d1d262d1c4cf6c8261ad95090a209dc",
        _for_sft,
    ),
    WheelProgram(
        "trl/scripts/dpo.py",
        "trl",
        "1.16.0",
        "faf93f88277ddb87d6f47f046756527f0c59071096f81545d249eb9fc4639d36",
        _for_dpo,
    ),
    WheelProgram(
        "accelerate/test_utils/scripts/external_deps/test_performance.py",
        "accelerate",
        "1.15.0",
        "32a3a6866756c6f61e07ac41d557e0f375c3806c699c77e75a3fa64c1a00a13e",
        _for_performance,
    ),
    WheelProgram(
        "lightning/pytorch/demos/transformer.py",
        "lightning",
        "2.6.6",
        "6655cf1b00acc96209b878598c2b5e63d1246bc32342e1991d42c5fc57aa4e4d",
        _for_transformer,
    ),
]
