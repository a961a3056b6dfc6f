"""Problems and their messages: path, got, allowed, next step; and exit codes."""

from __future__ import annotations

from infra.errors import ExitCode, HostError, InputError, Problem

PROBLEM = Problem("pools[1].accelerator.count", "'1'", "a whole number", "write 1", "Pulumi.local.yaml:9:30")


def test_a_problem_shows_where_what_is_allowed_and_the_next_step() -> None:
    assert str(PROBLEM).splitlines() == [
        "pools[1].accelerator.count (Pulumi.local.yaml:9:30)",
        "  got:     '1'",
        "  allowed: a whole number",
        "  fix:     write 1",
    ]


def test_problems_are_shown_together() -> None:
    assert str(InputError([PROBLEM, PROBLEM])).count("fix:") == 2


def test_wrong_input_and_a_host_without_requirements_have_separate_exit_codes() -> None:
    assert InputError([PROBLEM]).exit_code is ExitCode.WRONG_INPUT
    assert HostError([PROBLEM]).exit_code is ExitCode.HOST
