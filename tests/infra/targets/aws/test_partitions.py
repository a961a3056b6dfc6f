"""The plan of a stack in GovCloud has ARNs only of that partition."""

import json
from pathlib import Path

from infra.stackfile import Stack, parse
from tests.infra.plan import cluster_plan


def in_govcloud(stack: Stack) -> Stack:
    """Return the same stack in GovCloud, which has another partition of ARNs."""
    data = json.dumps(stack.model_dump(mode="json", by_alias=True, exclude_none=True))
    return parse(
        json.loads(data.replace("us-east-2", "us-gov-west-1").replace("arn:aws:", "arn:aws-us-gov:"))
    )


def test_every_arn_of_a_stack_in_govcloud_is_of_its_partition(aws: Stack, rendered: Path) -> None:
    found = cluster_plan(in_govcloud(aws), rendered).resources
    texts = {
        each.name: json.dumps(each.inputs, default=str) for each in found if each.type.startswith("aws:")
    }
    assert len(texts) > 50
    assert [name for name, text in texts.items() if "arn:aws:" in text] == []
    assert any("arn:aws-us-gov:iam::aws:policy/" in text for text in texts.values())
