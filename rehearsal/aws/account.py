"""`MotoAccount`: validates AWS resources, and creates, reads, updates and deletes them in moto through boto3.

Types that moto lacks are checked by botocore's models only, and recorded as such.
"""

import base64
import hashlib
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import jmespath
from botocore.exceptions import BotoCoreError, ClientError
from moto import mock_aws
from moto.utilities.utils import get_partition

from rehearsal import sdk
from rehearsal.aws import models, principals
from rehearsal.aws.existing import Existing
from rehearsal.aws.lifecycles import NOT_FOUND, filled, kind, life, service
from rehearsal.aws.requests import SELF, Request, requests, tagged, tagging
from rehearsal.cloud import (
    Cloud,
    CreatedResource,
    Properties,
    Refusal,
    RefusedError,
    RequestedResource,
    at,
    changed,
)
from rehearsal.wire import has_unknown

ACCOUNT = "123456789012"
"""moto's account ID; a stack for another account sees its own ID in answers."""
MAX_TAGS, MAX_TAG_KEY, MAX_TAG_VALUE = 50, 128, 256
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nrehearsal\n-----END CERTIFICATE-----\n"
"""CA certificate in PEM, as EKS returns it; moto returns another text."""


class MotoAccount(Cloud):
    """A moto account with one region; a context manager, since moto is active only inside `with`."""

    def __init__(self, region: str, existing: Existing | None = None) -> None:
        """`existing`: resources of the account before the stack is created."""
        super().__init__()
        self.region = region
        self._existing = existing or Existing()
        self.lacks: set[str] = set()
        """Types of resources that moto has no operation for."""
        self._lock = threading.Lock()
        self._warming = threading.Thread(target=self._warm_up)
        self._moto = mock_aws(config={"iam": {"load_aws_managed_policies": True}})

    def __enter__(self) -> "MotoAccount":
        self._moto.start()
        models.motos_ids.update(self._existing.put(self.region))
        self._warming.start()
        return self

    def _warm_up(self) -> None:
        """Let moto read its tables while the engine still works on its first preview."""
        with self._lock:
            models.client("ec2", self.region).describe_vpcs()
            models.client("iam", self.region).list_roles()

    def __exit__(self, *_: object) -> None:
        self._warming.join()  # without moto, its requests would go to AWS
        self._moto.stop()
        models.motos_ids.clear()

    def check(self, resource: RequestedResource) -> Iterable[Refusal]:
        """Evaluate by the SDK's types, and where these hold by the requests that would be made."""
        refused = list(sdk.problems(resource.token, resource.inputs))
        tags = {**resource.default_tags, **(resource.inputs.get("tags") or {})}
        return refused or [*self._too_long(resource), *self._tags(tags), *self._answered_by_moto(resource)]

    def autoname(self, token: str) -> str | None:
        name: str | None = life(token).get("autoname")
        return name

    def replaces(self, token: str) -> Sequence[str]:
        return tuple(life(token).get("replaces", ()))

    def changing_outputs(self, token: str) -> Sequence[str]:
        return tuple(life(token).get("changing_outputs", ()))

    def example_outputs(self, token: str) -> Properties:
        return {"vpcConfig": {"clusterSecurityGroupId": ""}} if kind(token) == "Cluster" else {}

    def unproven(self, _package: str) -> Mapping[str, Sequence[str]]:
        if not self.lacks:
            return {}
        return {"not in moto: the requests match botocore's models, nothing was created": sorted(self.lacks)}

    def create(self, resource: RequestedResource) -> CreatedResource:
        with self._lock:
            answers = self._make(resource)
        context = self._context(resource)
        identity = self._identity(resource, answers)
        lifecycles = life(resource.token)
        known = {**context, "self": identity, "arn": identity}
        outputs = {key: _found(path, answers, known) for key, path in lifecycles.get("outputs", {}).items()}
        outputs = {key: value for key, value in outputs.items() if value is not None}
        if kind(resource.token) == "Cluster":
            outputs |= self._of_cluster(resource, answers)
        if kind(resource.token) == "NodeGroup":
            outputs |= self._of_node_group(resource, answers)
        made = {**known, **outputs}
        return CreatedResource(
            str(filled(lifecycles.get("id", "{self}"), made)), {**_declared(resource, answers), **outputs}
        )

    def exists(self, resource: RequestedResource) -> bool:
        with self._lock:
            return self._look(resource) is not None

    def update(self, resource: RequestedResource, inputs: Properties) -> Properties:
        lifecycles = life(resource.token)
        if "update" not in lifecycles:
            names = ", ".join(changed(resource.inputs, inputs))
            raise RefusedError(f"{resource.token} {resource.name}: {names} cannot be changed in place")
        after = replace(resource, inputs=inputs)
        calls = (
            self._again(after)
            if lifecycles["update"] == "again"
            else self._calls(after, lifecycles["update"])
        )
        with self._lock:
            answers: dict[str, Any] = {}
            for call in calls:
                answers |= self._call(call, resource) or {}
        return _version(answers, resource)

    def delete(self, resource: RequestedResource) -> None:
        with self._lock:
            for call in self._calls(resource, life(resource.token).get("delete", ())):
                self._call(call, resource, may_be_missing=True)
            if kind(resource.token) == "Cluster":
                group = at(resource.outputs, "vpcConfig.clusterSecurityGroupId")
                models.client("ec2", self.region).delete_security_group(GroupId=group)
            if kind(resource.token) == "NodeGroup":
                name = at(resource.outputs, "resources")[0]["autoscalingGroups"][0]["name"]
                models.client("autoscaling", self.region).delete_auto_scaling_group(
                    AutoScalingGroupName=name, ForceDelete=True
                )

    def resize(self, resource: RequestedResource, inputs: Properties) -> None:
        """Ask for other sizes of a node group, as our plugin does. Raises `RefusedError`."""
        sizes = {"minSize": inputs["minSize"], "desiredSize": inputs["size"], "maxSize": inputs["size"]}
        group = {"clusterName": inputs["cluster"], "nodegroupName": inputs["nodeGroup"]}
        with self._lock:
            self._call(Request("eks", "update_nodegroup_config", {**group, "scalingConfig": sizes}), resource)

    def _tags(self, tags: Mapping[str, Any]) -> Iterator[Refusal]:
        """Evaluate tags as AWS does; botocore's models know the limits of few services.

        Source: AWS, "Best practices for tagging AWS resources", tag naming limits and requirements.
        """
        if len(tags) > MAX_TAGS:
            yield "tags", f"got {len(tags)}; at most {MAX_TAGS} are allowed"
        for key, value in tags.items():
            if not 1 <= len(key) <= MAX_TAG_KEY or key.startswith("aws:"):
                yield (
                    "tags",
                    f"key {key!r}: 1 to {MAX_TAG_KEY} characters that do not begin with aws: are allowed",
                )
            if not has_unknown(value) and len(str(value)) > MAX_TAG_VALUE:
                yield f"tags.{key}", f"got {len(value)} characters; at most {MAX_TAG_VALUE} are allowed"

    def _too_long(self, resource: RequestedResource) -> Iterator[Refusal]:
        """Evaluate the name, which the provider has made up where the program sets none."""
        field, longest = self.autoname(resource.token), life(resource.token).get("longest")
        name = self._physical(resource)
        if field and longest and len(name) > longest:
            yield field, f"got {len(name)} characters; at most {longest} are allowed"

    def _answered_by_moto(self, resource: RequestedResource) -> Iterator[Refusal]:
        for request in self._requests(resource):
            for path, reason in models.problems(request, self.region):
                yield _property(path, resource.inputs), reason

    def _requests(self, resource: RequestedResource) -> list[Request]:
        made = requests(resource.token, self._physical(resource), resource.inputs)
        tags = {**resource.default_tags, **(resource.inputs.get("tags") or {})}
        first = tagged(made[0], tags, models.operation(made[0], self.region)) if tags else made[0]
        return [first, *made[1:], *tagging(first, tags)]

    def _physical(self, resource: RequestedResource) -> str:
        field = self.autoname(resource.token)
        return str(resource.inputs.get(field, resource.name)) if field else resource.name

    def _make(self, resource: RequestedResource) -> dict[str, Any]:
        """Make the resource, and return all that was answered; nothing where moto lacks it."""
        answers: dict[str, Any] = {}
        for request in self._requests(resource):
            parameters = _put(request.parameters, str(answers.get(SELF, "")))
            if request.operation == "put_scheduled_update_group_action":
                _check_moment(resource, parameters)
            if request.operation == "create_key":
                self._check_principals(resource, parameters["Policy"])
            answer = self._call(Request(request.service, request.operation, parameters), resource)
            if answer is None:
                return {}
            answers |= {key: value for key, value in answer.items() if key != "ResponseMetadata"}
            if request.identity:
                answers[SELF] = jmespath.search(request.identity, answer)
        if found := self._look(resource, str(answers.get(SELF, ""))):
            answers |= found if isinstance(found, dict) else {}
        return answers

    def _check_principals(self, resource: RequestedResource, policy: str) -> None:
        """Refuse a key's policy as KMS does, which moto does not."""
        if named := principals.missing(policy, models.client("iam", self.region)):
            reason = "MalformedPolicyDocumentException: Policy contains a statement with one or more invalid"
            raise RefusedError(f"{resource.token} {resource.name}: {reason} principals: {', '.join(named)}")

    def _look(self, resource: RequestedResource, identity: str = "") -> Any:
        """Read the resource; None where it does not exist, and the resource itself where moto lacks it."""
        read = dict(life(resource.token)["read"])
        path = filled(read.pop("at"), self._context(resource))
        fresh = replace(resource, outputs={"arn": identity}, id=identity)
        seen = fresh if identity else resource
        if resource.token in self.lacks:
            return {}
        (call,) = self._calls(seen, [read])
        try:
            answer = self._call(call, resource)
        except RefusedError as error:
            if NOT_FOUND.search(str(error)):
                return None
            raise
        found = {} if answer is None else jmespath.search(path, answer)
        return None if found in (None, []) else found

    def _of_cluster(self, resource: RequestedResource, answers: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs of a cluster; EKS makes a security group for it, and moto does not."""
        config = resource.inputs["vpcConfig"]
        ec2 = models.client("ec2", self.region)
        with self._lock:
            subnet = ec2.describe_subnets(SubnetIds=config["subnetIds"][:1])["Subnets"][0]
            name = f"eks-cluster-sg-{resource.inputs['name']}"
            purpose = (
                "EKS created security group applied to ENI that is attached to EKS Control Plane master nodes"
            )
            group = ec2.create_security_group(GroupName=name, Description=purpose, VpcId=subnet["VpcId"])
        return {
            "certificateAuthority": {"data": base64.b64encode(CERTIFICATE.encode()).decode()},
            "vpcConfig": {**config, "clusterSecurityGroupId": group["GroupId"], "vpcId": subnet["VpcId"]},
        }

    def _of_node_group(self, resource: RequestedResource, answers: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs of a node group; EKS makes a scaling group for it, and moto returns no name for it."""
        (behind,) = answers["resources"]["autoScalingGroups"]
        template = resource.inputs["launchTemplate"]
        with self._lock:
            models.client("autoscaling", self.region).create_auto_scaling_group(
                AutoScalingGroupName=behind["name"],
                LaunchTemplate={"LaunchTemplateId": template["id"], "Version": template["version"]},
                MinSize=0,
                MaxSize=resource.inputs["scalingConfig"]["maxSize"],
                DesiredCapacity=0,  # instances are not rehearsed
                VPCZoneIdentifier=",".join(resource.inputs["subnetIds"]),
            )
        return {"resources": [{"autoscalingGroups": [behind], "remoteAccessSecurityGroupId": ""}]}

    def _again(self, resource: RequestedResource) -> list[Request]:
        made = self._requests(resource)
        return [Request(each.service, each.operation, _put(each.parameters, resource.id)) for each in made]

    def _calls(self, resource: RequestedResource, written: Iterable[Mapping[str, Any]]) -> list[Request]:
        context = self._context(resource)
        context["made"] = requests(resource.token, resource.name, resource.inputs)[0].parameters
        return [
            Request(service(resource.token), operation, filled(parameters, context))
            for each in written
            for operation, parameters in each.items()
        ]

    def _context(self, resource: RequestedResource) -> dict[str, Any]:
        identity = {
            "logical": resource.name,
            "account": ACCOUNT,
            "region": self.region,
            "partition": get_partition(self.region),
        }
        return {**resource.inputs, **resource.outputs, "self": resource.id, "id": resource.id, **identity}

    def _identity(self, resource: RequestedResource, answers: Mapping[str, Any]) -> str:
        made_up = hashlib.sha256(resource.name.encode()).hexdigest()[:17]
        return str(answers.get(SELF) or f"{kind(resource.token).lower()}-{made_up}")

    def _call(
        self, request: Request, resource: RequestedResource, *, may_be_missing: bool = False
    ) -> dict[str, Any] | None:
        """Call boto3; None where moto lacks the operation. Raises `RefusedError`."""
        parameters = {key: value for key, value in request.parameters.items() if value is not None}
        try:
            answer: dict[str, Any] = getattr(models.client(request.service, self.region), request.operation)(
                **parameters
            )
        except NotImplementedError:
            self.lacks.add(resource.token)
            return None
        except (ClientError, BotoCoreError) as error:
            if "Not yet implemented" in str(error):
                self.lacks.add(resource.token)
                return None
            if NOT_FOUND.search(str(error)) and (may_be_missing or request.operation.startswith("revoke_")):
                return {}
            raise RefusedError(f"{resource.token} {resource.name}: {request.operation}: {error}") from error
        return answer


def _check_moment(resource: RequestedResource, parameters: Mapping[str, Any]) -> None:
    """Refuse an action in the past: Auto Scaling does, moto does not (PutScheduledUpdateGroupAction)."""
    starts = parameters.get("StartTime")
    if starts and datetime.fromisoformat(starts) <= datetime.now(UTC):
        raise RefusedError(
            f"{resource.token} {resource.name}: ValidationError: Given start time is in the past"
        )


def _put(value: Any, identity: str) -> Any:
    """Put the resource's own ID where a request asks for it."""
    if isinstance(value, Mapping):
        return {key: _put(each, identity) for key, each in value.items()}
    if isinstance(value, list):
        return [_put(each, identity) for each in value]
    return identity if value == SELF else value


def _found(path: str, answers: Mapping[str, Any], known: Properties) -> Any:
    """An output: a text after `=`, a text with placeholders, or a path in the answers."""
    if path.startswith("="):
        return path[1:]
    return filled(path, known) if "{" in path else jmespath.search(path, answers)


def _declared(resource: RequestedResource, answers: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs that the SDK declares and the answers have, spelled as AWS spells them."""
    given = {key[0].lower() + key[1:]: value for key, value in answers.items() if key != SELF}
    plain = (str, int, float, bool)
    return {
        name: given[name]
        for name in sdk.outputs_of(resource.token)
        if name not in resource.inputs and isinstance(given.get(name), plain)
    }


def _version(answers: Mapping[str, Any], resource: RequestedResource) -> dict[str, Any]:
    """Outputs that a change has given a new value: the version of a launch template."""
    if "LaunchTemplateVersion" not in answers:
        return {}
    number = answers["LaunchTemplateVersion"]["VersionNumber"]
    return {
        "latestVersion": number,
        "defaultVersion": number if resource.inputs.get("updateDefaultVersion") else 1,
    }


def _property(path: str, inputs: Properties) -> str:
    """The property of the program behind a path of a request, as far as the names match."""
    parts = [part for part in re.split(r"[.\[\]]+", path) if part and not part.isdigit()]
    spelled = [part[0].lower() + part[1:] for part in parts]
    start = next((index for index, part in enumerate(spelled) if part in inputs), None)
    return path if start is None else ".".join(spelled[start:])
