"""Programs that we did not write, with ten changed lines at most, are killed and lose nothing.

They run in forks of a process that has imported what they import: `make test` kills each twice, `make soak`
all together two hundred times more, the first two seeds of each with every start anew, whose imports take
most of its time. The seed is in the test's name.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

import psutil
import pytest
import torch

from tests.processes import TIMEOUT_SECONDS, wait_for
from tests.training.foreign.forks import ForkedProgram, Forks
from tests.training.foreign.programs import PACKAGES, PROGRAMS, WheelProgram, start
from tests.training.hold import hold
from tests.training.launch import events
from trainyard_train.checkpointing.state import load_tensors
from trainyard_train.checkpointing.stores import open_store
from trainyard_train.observability.metrics import FILE, read_metrics, surviving_steps

KILLS = 2
"""Of one run."""
SEEDS = 1 + 25
"""Of each program: 200 kills of four in `make soak`."""
ANEW = (1, 2)
"""Seeds whose starts are none of forks."""
MOST_LINES = 10
_TIMEOUT_SECONDS = 4 * TIMEOUT_SECONDS
"""For three processes that import everything at once."""
_TWO_RANKS = (
    "-m",
    "torch.distributed.run",
    "--nproc-per-node=2",
    "--rdzv-backend=c10d",
    "--rdzv-endpoint=localhost:0",
)
Result = tuple[list[tuple[int, float]], dict[str, torch.Tensor]]


@dataclass
class ProgramFolder:
    """A program, where it runs."""

    program: Path
    arguments: list[str]
    forks: Forks

    def start(
        self, name: str, *, anew: bool = False, variables: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes] | ForkedProgram:
        """By a fork, which gets these variables, or as a process that imports everything anew."""
        arguments = [*self.arguments, "--output_dir", str(self.program.parent / name)]
        if anew:
            return start(self.program, arguments, self.log(name))
        return self.forks.start(self.program, arguments, self.log(name), variables)

    def start_ranks(self, name: str) -> subprocess.Popen[bytes]:
        """Two of them, by torchrun."""
        arguments = [*self.arguments, "--output_dir", str(self.program.parent / name)]
        return start(self.program, arguments, self.log(name), launcher=_TWO_RANKS)

    def log(self, name: str) -> Path:
        return self.program.parent / f"{name}.log"

    def finish(self, name: str, *, anew: bool = False) -> None:
        assert self.start(name, anew=anew).wait(TIMEOUT_SECONDS) == 0, self.log(name).read_text()

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
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, forks: Forks
) -> Callable[[WheelProgram], ProgramFolder]:
    """The place of a program, where it has run to its end once."""
    places: dict[str, ProgramFolder] = {}

    def make(program: WheelProgram) -> ProgramFolder:
        if program.file not in places:
            folder = tmp_path_factory.mktemp("program")
            place = places[program.file] = ProgramFolder(
                program.patched(folder), list(program.prepare(folder)), forks
            )
            place.finish("undisturbed")
        return places[program.file]

    return make


@pytest.mark.ranks
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.file)
def test_a_program_is_what_its_wheel_ships_and_the_patch_is_short(
    program: WheelProgram, tmp_path: Path
) -> None:
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
    program: WheelProgram, seed: int, undisturbed: Callable[[WheelProgram], ProgramFolder]
) -> None:
    place, chance = undisturbed(program), random.Random(f"{program.file} {seed}")
    name, anew = f"seed-{seed}", seed in ANEW
    run_dir = place.program.parent / name
    for number in chance.sample([signal.SIGTERM, signal.SIGKILL], KILLS):
        known, more = len(events(run_dir, "step")), chance.randrange(1, 12)
        held = hold(run_dir.with_name("held"), more + 1)  # a step's line is written by the next
        process = place.start(name, anew=anew, variables=held)
        wait_for(
            lambda: len(events(run_dir, "step")) >= known + more or process.poll() is not None,  # noqa: B023
            place.log(name).read_text,
        )
        process.send_signal(number)
        code = process.wait(TIMEOUT_SECONDS)
        assert code == (75 if number is signal.SIGTERM else -number), place.log(name).read_text()
    place.finish(name, anew=anew)
    assert _attempts(run_dir) == KILLS + 1
    losses, tensors = place.result(name)
    expected_losses, expected_tensors = place.result("undisturbed")
    assert losses == expected_losses
    assert tensors.keys() == expected_tensors.keys()
    assert [key for key, value in tensors.items() if not value.equal(expected_tensors[key])] == []


@pytest.mark.soak
@pytest.mark.ranks
@pytest.mark.parametrize("seed", range(4))
def test_two_ranks_of_a_program_lose_nothing_when_one_is_killed_or_all_are_preempted(
    seed: int, tmp_path: Path, forks: Forks
) -> None:
    """As torchrun starts it, which ends the other rank, or hands the notice to both."""
    (program,) = (each for each in PROGRAMS if each.wheel == "accelerate")
    place = ProgramFolder(program.patched(tmp_path), list(program.prepare(tmp_path)), forks)
    assert place.start_ranks("undisturbed").wait(_TIMEOUT_SECONDS) == 0, place.log("undisturbed").read_text()
    run_dir, chance = tmp_path / "disturbed", random.Random(seed)
    for number in chance.sample([signal.SIGTERM, signal.SIGKILL], KILLS):
        known, more = len(events(run_dir, "step")), chance.randrange(1, 4)
        launcher = place.start_ranks("disturbed")
        wait_for(
            lambda: len(events(run_dir, "step")) >= known + more or launcher.poll() is not None,  # noqa: B023
            place.log("disturbed").read_text,
        )
        ranks = [
            each for each in psutil.Process(launcher.pid).children() if place.program.name in each.cmdline()
        ]
        target = launcher if number is signal.SIGTERM else chance.choice(ranks)
        target.send_signal(number)
        assert launcher.wait(_TIMEOUT_SECONDS) != 0
    assert place.start_ranks("disturbed").wait(_TIMEOUT_SECONDS) == 0, place.log("disturbed").read_text()
    assert _attempts(run_dir) == KILLS + 1
    losses, tensors = place.result("disturbed")
    expected_losses, expected_tensors = place.result("undisturbed")
    assert losses == expected_losses
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
