"""Every AWS resource of the stacks through boto3: botocore's models judge each request, moto makes it.

What moto lacks is judged by the models alone; the golden list says what that is, and may not grow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import boto3
import jmespath
import pytest
import yaml
from botocore.exceptions import ClientError
from botocore.model import ListShape, Shape, StringShape, StructureShape
from botocore.validate import ParamValidator
from moto import mock_aws

from infra.spec import Stack, load
from tests.infra.golden import GOLDEN, assert_matches
from tests.infra.plan import Plan, Registration, cluster_plan, stack_file
from tests.infra.providers.aws.answers import identity
from tests.infra.providers.aws.requests import SELF, Request, requests
from tests.infra.providers.aws.test_plan_of_aws import with_provider


@pytest.fixture(scope="module")
def plans(aws: Stack, rendered: Path) -> list[Plan]:
    """Both stacks, and what they leave out: the queue of notices."""
    stacks = [with_provider(aws, interruption_queue=True), load(stack_file("aws-dev"))]
    return [cluster_plan(stack, rendered) for stack in stacks]


@dataclass
class Account:
    """An account in moto; `known` maps names of the plan to what they have become."""

    known: dict[str, str] = field(default_factory=dict)
    clients: dict[str, Any] = field(default_factory=dict)
    lacks: set[str] = field(default_factory=set)
    """Types of resources for which moto has no operation."""

    def create(self, resource: Registration) -> None:
        """Create a resource, or judge its requests by the models where moto cannot."""
        name = identity(resource.type, resource.name)
        for request in requests(resource.type, resource.name, resource.inputs):
            client = self.clients.setdefault(request.service, _client(request.service))
            filled = replace(request, parameters=self._filled(request.parameters, name))
            assert not list(problems(client, filled)), f"{name}: {filled}"
            try:
                answer = getattr(client, request.operation)(**filled.parameters)
            except (NotImplementedError, ClientError) as error:
                assert _is_lacking(error), f"{name}: {error}"
                self.lacks.add(resource.type)
                return
            for path, names in ((request.identity, (name, f"arn:{name}")), (request.arn, (f"arn:{name}",))):
                if path:
                    self.known |= dict.fromkeys(names, str(jmespath.search(path, answer)))
            if resource.type == "aws:eks/cluster:Cluster":
                # moto's clusters have no security group of their own.
                group = self.known[f"SecurityGroup/{resource.name}-endpoints"]
                self.known[f"ClusterGroup/{resource.name}"] = group

    def _filled(self, value: Any, self_name: str) -> Any:
        if isinstance(value, Mapping):
            return {key: self._filled(each, self_name) for key, each in value.items()}
        if isinstance(value, list):
            return [self._filled(each, self_name) for each in value]
        if value == SELF:
            return self.known[self_name]
        return self.known.get(value, value) if isinstance(value, str) else value


def problems(client: Any, request: Request) -> Iterator[str]:
    """What botocore's models refuse: shapes by its own validator, and the values that it leaves to AWS."""
    operation = client.meta.service_model.operation_model(
        client.meta.method_to_api_mapping[request.operation]
    )
    report = ParamValidator().validate(dict(request.parameters), operation.input_shape)
    yield from [report.generate_report()] if report.has_errors() else []
    yield from _values(operation.input_shape, request.parameters, request.operation)


def _values(shape: Shape, value: Any, path: str) -> Iterator[str]:
    if isinstance(shape, StringShape) and shape.enum and value not in shape.enum:
        yield f"{path}: {value!r} is none of {', '.join(shape.enum)}"
    elif isinstance(shape, StructureShape) and isinstance(value, Mapping):
        for key in value.keys() & shape.members.keys():
            yield from _values(shape.members[key], value[key], f"{path}.{key}")
    elif isinstance(shape, ListShape):
        for each in value:
            yield from _values(shape.member, each, path)


def _client(service: str) -> Any:
    make: Callable[..., Any] = boto3.client
    keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
    return make(service, region_name="us-east-2", **keys)


def _is_lacking(error: Exception) -> bool:
    return isinstance(error, NotImplementedError) or "Not yet implemented" in str(error)


def _in_order(found: Plan) -> Iterator[Registration]:
    """The AWS resources, each after those that it depends on."""
    waiting = {each.urn: each for each in found.resources if each.type.startswith("aws:")}
    while waiting:
        ready = [each for each in waiting.values() if not waiting.keys() & set(each.dependencies)]
        assert ready, "a circle of dependencies"
        for each in ready:
            yield waiting.pop(each.urn)


def test_every_resource_goes_through_moto_or_botocores_models(plans: list[Plan]) -> None:
    lacks: set[str] = set()
    for found in plans:
        with mock_aws(config={"iam": {"load_aws_managed_policies": True}}):
            account = Account()
            for resource in _in_order(found):
                account.create(resource)
            lacks |= account.lacks
    assert_matches(yaml.safe_dump({"moto lacks": sorted(lacks)}), GOLDEN / "moto.yaml")


@pytest.mark.parametrize(
    ("operation", "parameters", "expected"),
    [
        ("create_nodegroup", {"capacityType": "BLOCK"}, "'BLOCK' is none of"),
        ("create_cluster", {"resourcesVpcConfig": {"subnets": []}}, "Unknown parameter"),
    ],
)
def test_the_models_refuse_what_aws_would(operation: str, parameters: dict[str, Any], expected: str) -> None:
    found = " ".join(problems(_client("eks"), Request("eks", operation, parameters)))
    assert expected in found
