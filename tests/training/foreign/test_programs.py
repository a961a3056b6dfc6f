"""Third-party programs with our callback, in at most ten changed lines, survive kills with the same result.

`make test` kills each program twice; `make soak` kills all of them together two hundred times more. Most
starts are forks of a process that has imported what the programs import; those of two seeds are new
processes, whose imports take most of their time. The seed is in the test's name.
"""

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
from tests.training.foreign.programs import PACKAGES, PROGRAMS, TWO_RANKS, WheelProgram, start
from tests.training.hold import hold
from tests.training.launch import events, load_tensors
from trainyard_train.checkpointing.stores import open_store
from trainyard_train.contract import FILE, read_metrics, surviving_steps

KILLS = 2
"""Kills of one run."""
SEEDS = 1 + 25
"""Seeds of each program: 200 kills of four programs in `make soak`."""
SEEDS_WITHOUT_FORKS = (1, 2)
"""Seeds whose every start is a new process, not a fork."""
MAX_CHANGED_LINES = 10
_TIMEOUT_SECONDS = 4 * TIMEOUT_SECONDS
"""Limit for three processes that import everything at once."""
Result = tuple[list[tuple[int, float]], dict[str, torch.Tensor]]


@dataclass
class ProgramFolder:
    """A program in the folder that it runs in."""

    program: Path
    arguments: list[str]
    forks: Forks

    def start(
        self, name: str, *, fork: bool = True, variables: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes] | ForkedProgram:
        """Start the run `name`: as a fork, which gets these variables, or as a new process."""
        arguments = [*self.arguments, "--output_dir", str(self.program.parent / name)]
        if fork:
            return self.forks.start(self.program, arguments, self.log(name), variables)
        return start(self.program, arguments, self.log(name))

    def start_ranks(self, name: str) -> subprocess.Popen[bytes]:
        """Start the run `name` with two ranks, by torchrun."""
        arguments = [*self.arguments, "--output_dir", str(self.program.parent / name)]
        return start(self.program, arguments, self.log(name), launcher=TWO_RANKS)

    def log(self, name: str) -> Path:
        return self.program.parent / f"{name}.log"

    def finish(self, name: str, *, fork: bool = True) -> None:
        assert self.start(name, fork=fork).wait(TIMEOUT_SECONDS) == 0, self.log(name).read_text()

    def result(self, name: str) -> Result:
        """Return the losses of all steps and the tensors of the last checkpoint."""
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
    """Return a program's folder, in which it has run to its end once without a kill."""
    folders: dict[str, ProgramFolder] = {}

    def folder_of(program: WheelProgram) -> ProgramFolder:
        if program.file not in folders:
            path = tmp_path_factory.mktemp("program")
            folders[program.file] = ProgramFolder(program.patched(path), list(program.prepare(path)), forks)
            folders[program.file].finish("undisturbed")
        return folders[program.file]

    return folder_of


@pytest.mark.ranks
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.file)
def test_a_program_is_what_its_wheel_has_and_a_short_patch(program: WheelProgram, tmp_path: Path) -> None:
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
    assert 0 < int(added) + int(removed) <= MAX_CHANGED_LINES


@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, marks=pytest.mark.soak if seed else pytest.mark.ranks) for seed in range(SEEDS)],
)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.file)
def test_a_program_that_is_killed_at_random_has_the_result_of_one_that_is_not(
    program: WheelProgram, seed: int, undisturbed: Callable[[WheelProgram], ProgramFolder]
) -> None:
    folder, chance = undisturbed(program), random.Random(f"{program.file} {seed}")
    name, fork = f"seed-{seed}", seed not in SEEDS_WITHOUT_FORKS
    run_dir = folder.program.parent / name
    for number in chance.sample([signal.SIGTERM, signal.SIGKILL], KILLS):
        known, more = len(events(run_dir, "step")), chance.randrange(1, 12)
        held = hold(run_dir.with_name("held"), more + 1)  # a step's line is written by the next
        process = folder.start(name, fork=fork, variables=held)
        wait_for(
            lambda: len(events(run_dir, "step")) >= known + more or process.poll() is not None,  # noqa: B023
            folder.log(name).read_text,
        )
        process.send_signal(number)
        code = process.wait(TIMEOUT_SECONDS)
        assert code == (75 if number is signal.SIGTERM else -number), folder.log(name).read_text()
    folder.finish(name, fork=fork)
    assert _attempts(run_dir) == KILLS + 1
    losses, tensors = folder.result(name)
    expected_losses, expected_tensors = folder.result("undisturbed")
    assert losses == expected_losses
    assert tensors.keys() == expected_tensors.keys()
    assert [key for key, value in tensors.items() if not value.equal(expected_tensors[key])] == []


@pytest.mark.soak
@pytest.mark.ranks
@pytest.mark.parametrize("seed", range(4))
def test_two_ranks_of_a_program_have_the_same_result_when_one_is_killed_or_all_are_preempted(
    seed: int, tmp_path: Path, forks: Forks
) -> None:
    """Torchrun starts the ranks: it ends the other rank after a kill, and passes the notice to both."""
    (program,) = (each for each in PROGRAMS if each.wheel == "accelerate")
    folder = ProgramFolder(program.patched(tmp_path), list(program.prepare(tmp_path)), forks)
    code = folder.start_ranks("undisturbed").wait(_TIMEOUT_SECONDS)
    assert code == 0, folder.log("undisturbed").read_text()
    run_dir, chance = tmp_path / "disturbed", random.Random(seed)
    for number in chance.sample([signal.SIGTERM, signal.SIGKILL], KILLS):
        known, more = len(events(run_dir, "step")), chance.randrange(1, 4)
        launcher = folder.start_ranks("disturbed")
        wait_for(
            lambda: len(events(run_dir, "step")) >= known + more or launcher.poll() is not None,  # noqa: B023
            folder.log("disturbed").read_text,
        )
        ranks = [
            each for each in psutil.Process(launcher.pid).children() if folder.program.name in each.cmdline()
        ]
        target = launcher if number is signal.SIGTERM else chance.choice(ranks)
        target.send_signal(number)
        assert launcher.wait(_TIMEOUT_SECONDS) != 0
    assert folder.start_ranks("disturbed").wait(_TIMEOUT_SECONDS) == 0, folder.log("disturbed").read_text()
    assert _attempts(run_dir) == KILLS + 1
    losses, tensors = folder.result("disturbed")
    expected_losses, expected_tensors = folder.result("undisturbed")
    assert losses == expected_losses
    assert [key for key, value in tensors.items() if not value.equal(expected_tensors[key])] == []


def _attempts(run_dir: Path) -> int:
    """Return the number of attempts, each of which resumed from the newest committed checkpoint or later."""
    committed, attempts = 0, 0
    for line in read_metrics(run_dir / FILE):
        if line["event"] == "checkpoint":
            committed = max(committed, line["step"])
        if line["event"] in {"started", "resumed"}:
            attempts += 1
            assert (line["step"] >= committed, line["damaged"]) == (True, [])
    return attempts
