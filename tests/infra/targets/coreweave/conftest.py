from __future__ import annotations

from pathlib import Path

import pytest

from infra.stackfile import Stack, load
from tests.infra.plan import Plan, plan, stack_file


@pytest.fixture(scope="session")
def coreweave() -> Stack:
    return load(stack_file("coreweave"))


@pytest.fixture(scope="session")
def coreweave_plan(coreweave: Stack, rendered: Path) -> Plan:
    return plan(coreweave, rendered)
