"""The lifecycle of AWS resources by boto3, and what AWS refuses: botocore's models validate each request, and
moto executes it.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from rehearsal.aws.account import MotoAccount
from rehearsal.cloud import RefusedError, RequestedResource
from tests.infra.plan import Plan, Registration
from tests.infra.targets.aws.answers import identity
from tests.tables import table


@dataclass
class Lifecycle:
    """Creates a plan's resources in an account; `known` maps IDs of the plan to the created ones."""

    account: MotoAccount
    known: dict[str, Any] = field(default_factory=dict)
    made: list[RequestedResource] = field(default_factory=list)

    def create(self, registered: Registration) -> None:
        """Create a resource."""
        name = identity(registered.type, registered.name)
        inputs = self._filled(registered.inputs)
        if (field := self.account.autoname(registered.type)) and field not in inputs:
            inputs[field] = registered.name
        resource = RequestedResource(registered.type, registered.name, inputs)
        assert not list(self.account.check(resource)), name
        made = self.account.create(resource)
        self.made.append(replace(resource, outputs={**inputs, **made.outputs}, id=made.id))
        self.known |= {name: made.id, f"arn:{name}": made.outputs.get("arn")}
        if registered.type == "aws:eks/cluster:Cluster":
            group = made.outputs["vpcConfig"]["clusterSecurityGroupId"]
            self.known[f"ClusterGroup/{registered.name}"] = group
        if registered.type == "aws:eks/nodeGroup:NodeGroup":
            (behind,) = made.outputs["resources"][0]["autoscalingGroups"]
            self.known[f"ScalingGroup/{registered.name}"] = behind["name"]

    def _filled(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._filled(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self._filled(each) for each in value]
        return self.known.get(value, value) if isinstance(value, str) else value


def in_order(found: Plan) -> Iterator[Registration]:
    """Yield the AWS resources, each after those that it depends on."""
    waiting = {each.urn: each for each in found.resources if each.type.startswith("aws:")}
    while waiting:
        ready = [each for each in waiting.values() if not waiting.keys() & set(each.dependencies)]
        assert ready, "a circle of dependencies"
        for each in ready:
            yield waiting.pop(each.urn)


def test_a_new_account_refuses_a_key_whose_policy_names_a_missing_role() -> None:
    role = "arn:aws:iam::123456789012:role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForX"
    statement = {"Effect": "Allow", "Action": "kms:*", "Resource": "*", "Principal": {"AWS": role}}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    key = RequestedResource("aws:kms/key:Key", "key", {"policy": policy, "description": "data"})
    with MotoAccount("us-east-2") as account, pytest.raises(RefusedError, match="invalid principals"):
        account.create(key)


def refusals(token: str, **inputs: object) -> str:
    """Return an account's errors about inputs, in one text."""
    found = MotoAccount("us-east-2").check(RequestedResource(token, "name", inputs))
    return "; ".join(f"{path}: {reason}" for path, reason in found)


@pytest.mark.parametrize(("token", "inputs", "expected"), table(__file__, "refused_inputs"))
def test_inputs_that_aws_would_refuse_are_refused_before_the_request(
    token: str, inputs: dict[str, object], expected: str
) -> None:
    assert expected in refusals(token, **inputs)
    assert expected or not refusals(token, **inputs)
