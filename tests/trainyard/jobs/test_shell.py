"""`trainyard shell` prints the whole output of a program in a pod, to its last byte."""

import os
import sys
from collections.abc import Iterator

import pytest

from tests.trainyard.jobs.connections import STDERR, STDOUT, Program
from trainyard.jobs.shell import _copied


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    """A program without standard input."""
    reader, writer = os.pipe()
    with os.fdopen(reader) as typed, os.fdopen(writer, "w"):
        monkeypatch.setattr(sys, "stdin", typed)
        yield Program()


def test_output_that_comes_with_the_end_is_printed(
    program: Program, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The output arrives between the reads of the two channels, as it did in one run of many."""

    def rest() -> None:
        program.writes(STDOUT, b"last")
        program.ends(7)

    program.writes(STDOUT, b"first\n")
    program.after_reading(STDOUT, rest)
    assert _copied(program.connection) == 7
    assert capfdbinary.readouterr().out == b"first\nlast"


def test_errors_that_come_with_the_end_are_printed(
    program: Program, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    program.writes(STDERR, b"no such file\n")
    program.ends(2)
    assert _copied(program.connection) == 2
    assert capfdbinary.readouterr().err == b"no such file\n"
