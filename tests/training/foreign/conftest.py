"""A process that has imported what foreign programs import, shared by their tests."""

from collections.abc import Iterator

import pytest

from tests.training.foreign.forks import Forks
from tests.training.foreign.programs import environment


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    started = Forks(environment(tmp_path_factory.mktemp("forks")))
    yield started
    started.close()
