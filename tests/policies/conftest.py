from __future__ import annotations

import pytest

from tests.policies.engine import Engine


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return Engine(tmp_path_factory.mktemp("engine"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that runs the real engine is no unit test."""
    for item in items:
        if "engine" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.e2e)
