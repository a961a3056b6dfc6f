"""The policy pack has no violations on the plans and the first previews of the shipped AWS stacks."""

from pathlib import Path

import pytest

from infra.stackfile import load
from tests.infra.evaluated import findings
from tests.infra.plan import Plan, plan, stack_file


@pytest.mark.parametrize("name", ["aws", "aws-dev"])
def test_the_policies_let_the_first_preview_pass(name: str, rendered: Path) -> None:
    assert findings(name, plan(load(stack_file(name)), rendered, preview=True)) == []


def test_the_policies_let_the_plans_pass(aws_plan: Plan, dev_plan: Plan) -> None:
    assert findings("aws", aws_plan) == findings("aws-dev", dev_plan) == []
