from __future__ import annotations

from pathlib import Path

import pytest

from infra.stackfile import Stack, load
from tests.infra.plan import Plan, plan, stack_file


@pytest.fixture(scope="session")
def aws() -> Stack:
    return load(stack_file("aws"))


@pytest.fixture(scope="session")
def aws_plan(aws: Stack, rendered: Path) -> Plan:
    return plan(aws, rendered)


@pytest.fixture(scope="session")
def dev_plan(rendered: Path) -> Plan:
    return plan(load(stack_file("aws-dev")), rendered)
