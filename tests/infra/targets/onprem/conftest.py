from __future__ import annotations

from pathlib import Path

import pytest

from infra.stackfile import Stack, load
from tests.infra.plan import Plan, plan, stack_file


@pytest.fixture(scope="session")
def onprem() -> Stack:
    return load(stack_file("onprem"))


@pytest.fixture(scope="session")
def onprem_plan(onprem: Stack, rendered: Path) -> Plan:
    return plan(onprem, rendered)
