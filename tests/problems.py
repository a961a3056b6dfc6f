"""The problems that a call is refused with."""

from collections.abc import Callable

import pytest

from infra.errors import InputError, Problem, TrainyardError


def problems_of(call: Callable[[], object], error: type[TrainyardError] = InputError) -> list[Problem]:
    """Return the problems of the error that a call must raise."""
    with pytest.raises(error) as refused:
        call()
    return list(refused.value.problems)


def problem_of(call: Callable[[], object], error: type[TrainyardError] = InputError) -> Problem:
    """Return the only one."""
    (problem,) = problems_of(call, error)
    return problem
