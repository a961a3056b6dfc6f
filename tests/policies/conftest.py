import pytest

from tests.policies.engine import PolicyEngine


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> PolicyEngine:
    return PolicyEngine(tmp_path_factory.mktemp("engine"))
