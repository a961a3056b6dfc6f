"""What a program in a pod writes comes out here, to its last byte."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import pytest

from tests.trainyard.member.connections import STDERR, STDOUT, Program
from trainyard.member.logs import _records
from trainyard.member.shell import _copied


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Program:
    return Program(monkeypatch)


def after_reading(program: Program, channel: int, then: Callable[[], None]) -> None:
    """Let something happen there as soon as this channel was read here for the first time."""
    read = program.connection.read_channel
    seen: list[bytes] = []

    def read_channel(asked: int) -> bytes:
        found: bytes = read(asked)
        if asked == channel and not seen:
            seen.append(found)
            then()
        return found

    program.connection.read_channel = read_channel


def test_output_that_comes_with_the_end_is_printed(
    program: Program, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """It comes between the reads of the two channels, as it did in one run of many."""
    nobody, _ = os.pipe()
    monkeypatch.setattr(sys, "stdin", os.fdopen(nobody))
    program.writes(STDOUT, b"first\n")

    def rest() -> None:
        program.writes(STDOUT, b"last")
        program.ends(7)

    after_reading(program, STDOUT, rest)
    assert _copied(program.connection) == 7
    assert capfdbinary.readouterr().out == b"first\nlast"


def test_errors_that_come_with_the_end_are_printed(
    program: Program, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    nobody, _ = os.pipe()
    monkeypatch.setattr(sys, "stdin", os.fdopen(nobody))
    program.writes(STDERR, b"no such file\n")
    program.ends(2)
    assert _copied(program.connection) == 2
    assert capfdbinary.readouterr().err == b"no such file\n"


def test_lines_of_a_log_that_come_with_the_end_are_read(program: Program) -> None:
    program.writes(STDOUT, b"one\n")

    def rest() -> None:
        program.writes(STDOUT, b"two\n")
        program.ends(0)

    after_reading(program, STDOUT, rest)
    assert list(_records(program.connection, lambda: False)) == [b"one", b"two"]
