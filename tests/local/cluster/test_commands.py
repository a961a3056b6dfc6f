"""A program of the operating system that fails, or takes too long, is reported with its command line."""

import pytest

from infra.errors import TrainyardError
from local.cluster.commands import program, run
from tests.problems import problem_of


@pytest.mark.parametrize(
    ("command", "got"),
    [(("sh", "-c", "echo no >&2; exit 3"), "no (exit status 3)"), (("sleep", "60"), "killed after 0.5 s")],
)
def test_a_program_that_does_not_succeed_is_reported(command: tuple[str, ...], got: str) -> None:
    path = program(command[0])
    problem = problem_of(lambda: run(path, *command[1:], timeout_seconds=0.5), TrainyardError)
    assert (problem.path, problem.got) == (" ".join([path, *command[1:]]), got)
