from __future__ import annotations

from pathlib import Path

import pytest

from infra.stackfile import Stack, load
from tests.infra.plan import Plan, plan, stack_file


@pytest.fixture(scope="session")
def azure() -> Stack:
    return load(stack_file("azure"))


@pytest.fixture(scope="session")
def azure_plan(azure: Stack, rendered: Path) -> Plan:
    return plan(azure, rendered)
