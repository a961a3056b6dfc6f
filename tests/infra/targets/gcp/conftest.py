from __future__ import annotations

from pathlib import Path

import pytest

from infra.stackfile import Stack, load
from tests.infra.plan import Plan, plan, stack_file


@pytest.fixture(scope="session")
def gcp() -> Stack:
    return load(stack_file("gcp"))


@pytest.fixture(scope="session")
def tpu() -> Stack:
    return load(stack_file("gcp-tpu"))


@pytest.fixture(scope="session")
def gcp_plan(gcp: Stack, rendered: Path) -> Plan:
    return plan(gcp, rendered)


@pytest.fixture(scope="session")
def tpu_plan(tpu: Stack, rendered: Path) -> Plan:
    return plan(tpu, rendered)
