"""Programs that we did not write, with ten changed lines at most, are killed and lose nothing.

`make test` kills each twice, `make soak` all together two hundred times; the seed is in the test's name.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

import pytest
import torch

from tests.processes import PATIENCE_SECONDS, wait_for
from tests.training.foreign.programs import PACKAGES, PROGRAMS, Program, start
from tests.training.launch import events
from trainyard_train.checkpointing.state import load_tensors
from trainyard_train.checkpointing.stores import open_store
from trainyard_train.observability.metrics import FILE, read_metrics, surviving_steps

KILLS = 2
"""Of one run."""
SEEDS = 1 + 33
"""Of each program: 200 kills of three in `make soak`."""
MOST_LINES = 10
Result = tuple[list[tuple[int, float]], dict[str, torch.Tensor]]


@dataclass
class Place:
    """A program, where it runs."""

    program: Path
    arguments: list[str]

    def start(self, name: str) -> subprocess.Popen[bytes]:
        return start(self.program, self.arguments, self.program.parent / name, self.log(name))

    def log(self, name: str) -> Path:
        return self.program.parent / f"{name}.log"

    def finish(self, name: str) -> None:
        assert self.start(name).wait(PATIENCE_SECONDS) == 0, self.log(name).read_text()

    def result(self, name: str) -> Result:
        """The losses of all steps and the tensors of the last checkpoint."""
        run_dir = self.program.parent / name
        steps = surviving_steps(read_metrics(run_dir / FILE))
        newest = open_store(str(run_dir / "checkpoints")).newest(
            lambda step, why: pytest.fail(f"{step}: {why}")
        )
        assert newest
        return [(line["step"], line["loss"]) for line in steps], load_tensors(newest)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Program], Place]:
    """The place of a program, where it has run to its end once."""
    places: dict[str, Place] = {}

    def make(program: Program) -> Place:
        if program.file not in places:
            folder = tmp_path_factory.mktemp("program")
            place = places[program.file] = Place(program.patched(folder), list(program.prepare(folder)))
            place.finish("undisturbed")
        return places[program.file]

    return make


@pytest.mark.ranks
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.file)
def test_a_program_is_what_its_wheel_ships_and_the_patch_is_short(program: Program, tmp_path: Path) -> None:
    found = {each.name: each.version for each in distributions(path=[str(PACKAGES)])}
    assert (found[program.wheel], program.original_sha256()) == (program.version, program.sha256)
    one, other = tmp_path / "original", tmp_path / "patched"
    one.mkdir()
    other.mkdir()
    files = (one / "program.py", other / "program.py")
    files[0].write_bytes((PACKAGES / program.file).read_bytes())
    files[1].write_bytes(program.patched(tmp_path).read_bytes())
    for file in files:
        subprocess.run([sys.executable, "-m", "ruff", "format", "--line-length=119", str(file)], check=True)
    command = ["git", "diff", "--no-index", "--numstat", *map(str, files)]
    added, removed, *_ = subprocess.run(command, capture_output=True, text=True).stdout.split()
    assert 0 < int(added) + int(removed) <= MOST_LINES


@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, marks=pytest.mark.soak if seed else pytest.mark.ranks) for seed in range(SEEDS)],
)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.file)
def test_killed_at_random_it_loses_nothing_and_ends_as_if_it_had_not_been(
    program: Program, seed: int, undisturbed: Callable[[Program], Place]
) -> None:
    place, chance = undisturbed(program), random.Random(f"{program.file} {seed}")
    name = f"seed-{seed}"
    run_dir = place.program.parent / name
    for number in chance.sample([signal.SIGTERM, signal.SIGKILL], KILLS):
        known, more = len(events(run_dir, "step")), chance.randrange(1, 12)
        process = place.start(name)
        wait_for(
            lambda: len(events(run_dir, "step")) >= known + more or process.poll() is not None,  # noqa: B023
            place.log(name).read_text,
        )
        process.send_signal(number)
        code = process.wait(PATIENCE_SECONDS)
        assert code == (75 if number is signal.SIGTERM else -number), place.log(name).read_text()
    place.finish(name)
    assert _attempts(run_dir) == KILLS + 1
    losses, tensors = place.result(name)
    expected_losses, expected_tensors = place.result("undisturbed")
    assert losses == expected_losses
    assert tensors.keys() == expected_tensors.keys()
    assert [key for key, value in tensors.items() if not value.equal(expected_tensors[key])] == []


def _attempts(run_dir: Path) -> int:
    """How often it was started, each time from what was committed, or later."""
    committed, attempts = 0, 0
    for line in read_metrics(run_dir / FILE):
        if line["event"] == "checkpoint":
            committed = max(committed, line["step"])
        if line["event"] in {"started", "resumed"}:
            attempts += 1
            assert (line["step"] >= committed, line["damaged"]) == (True, [])
    return attempts
