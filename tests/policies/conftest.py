from __future__ import annotations

import pytest

from tests.policies.engine import Engine


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return Engine(tmp_path_factory.mktemp("engine"))
