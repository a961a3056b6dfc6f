"""The authorization requests to IAM for a rehearsal's calls: action, resources and condition keys.

Source: Service Authorization Reference (resource types and condition keys of each action), November 2026.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from rehearsal.aws.account import ACCOUNT, MotoAccount
from rehearsal.aws.requests import _TAGS, Request
from rehearsal.cloud import CreatedResource, Properties, RefusedError, RequestedResource
from tests.infra.targets.aws.iam import IamCall, Keys, is_allowed
from tests.tables import table

REGION = "us-east-2"
S3 = table(__file__)["s3"]
"""Operation → action, for those with different names."""
SERVICES = {"efs": "elasticfilesystem"}
EC2 = table(__file__)["ids"]
"""Beginning of an ID → resource type."""
MADE = table(__file__)["made"]
UNTAGGED = {"AuthorizeSecurityGroupIngress"}
"""Operations that create a rule, which IAM evaluates only if the request has tags for it."""
ROUTES = {"CreateRoute", "ReplaceRoute", "DeleteRoute"}
"""Operations of which IAM evaluates only the route table, whatever the route's target is."""
PASSED = table(__file__)["passed"]
"""Operation → service to which the named role is passed."""
_ID = re.compile(r"([a-z]+)-[0-9a-f]{8,17}")
_ROLE = re.compile(r"arn:aws:iam::\d+:role/[\w+=,.@/-]+")


def arn(service: str, resource: str) -> str:
    return f"arn:aws:{service}:{REGION}:{ACCOUNT}:{resource}"


def questions(request: Request, stack: str, theirs: Mapping[str, Keys]) -> Iterator[IamCall]:
    """Yield IAM's requests for a call; `theirs` has the tags of resources outside of the stack."""
    service = SERVICES.get(request.service, request.service)
    name = "".join(part.capitalize() for part in request.operation.split("_"))
    action = f"{service}:{S3.get(name, name) if service == 's3' else name}"
    tags = {"aws:ResourceTag/trainyard.dev/stack": stack}
    asked = _request_tags(request, name)
    parameters = {key: value for key, value in request.parameters.items() if value is not None}
    for resource, keys in _RESOURCES[request.service](request.operation, name, parameters, asked):
        known = theirs.get(resource, tags if keys is None else {})
        yield IamCall(action, resource, known if keys is None else {**_bounded(service, known), **keys})
    if asked and service == "ec2":
        made = arn("ec2", f"{MADE[name]}/*")
        yield IamCall("ec2:CreateTags", made, {**asked, "ec2:CreateAction": name})
    for role in _ROLE.findall(str(request.parameters)) if request.operation in PASSED else ():
        yield IamCall("iam:PassRole", role, {"iam:PassedToService": PASSED[request.operation]})


def _bounded(service: str, known: Keys) -> Keys:
    """For an existing role IAM has the boundary, and none of the tags in our policies' conditions."""
    return known if service == "iam" else {}


def _request_tags(request: Request, name: str) -> dict[str, str]:
    given: Any = next((request.parameters[key] for key in _TAGS if request.parameters.get(key)), {})
    if name == "CreateLaunchTemplate" or "TagSpecifications" in request.parameters:
        given = next((each["Tags"] for each in request.parameters.get("TagSpecifications", ())), [])
    pairs = given if isinstance(given, Mapping) else {
        each.get("Key", each.get("TagKey")): each.get("Value", each.get("TagValue")) for each in given
    }  # fmt: skip
    return {f"aws:RequestTag/{key}": value for key, value in pairs.items()}


Found = Iterator[tuple[str, Keys | None]]
"""ARN and condition keys; None: the tags of the existing resource."""


def _ec2(operation: str, name: str, parameters: Mapping[str, Any], asked: Keys) -> Found:
    if operation.startswith("describe_"):
        yield "*", {}
        return
    if name in MADE and (asked or name not in UNTAGGED):
        yield arn("ec2", f"{MADE[name]}/*"), asked
    if "GroupName" in parameters and operation == "delete_placement_group":
        yield arn("ec2", f"placement-group/{parameters['GroupName']}"), None
    asked_about = {"RouteTableId"} if name in ROUTES else parameters.keys()
    for value in (parameters[key] for key in parameters if key in asked_about):
        for each in [value] if isinstance(value, str) else value if isinstance(value, list) else ():
            if isinstance(each, str) and (found := _ID.fullmatch(each)) and found[1] in EC2:
                yield arn("ec2", f"{EC2[found[1]]}/{each}"), None


def _eks(operation: str, _name: str, parameters: Mapping[str, Any], _asked: Keys) -> Found:
    cluster = parameters.get("clusterName", parameters.get("name"))
    parts = {
        "nodegroup": parameters.get("nodegroupName"),
        "addon": parameters.get("addonName"),
        "access-entry": parameters.get("principalArn"),
        "podidentityassociation": parameters.get("associationId"),
    }
    on_cluster = operation.startswith("create_") or operation == "list_pod_identity_associations"
    part = next((kind for kind, value in parts.items() if value and not on_cluster), None)
    yield arn("eks", f"{part}/{cluster}/x" if part else f"cluster/{cluster}"), {}


def _iam(operation: str, _name: str, parameters: Mapping[str, Any], _asked: Keys) -> Found:
    condition_keys = {"PolicyArn": "iam:PolicyARN", "PermissionsBoundary": "iam:PermissionsBoundary"}
    keys = {key: parameters[name] for name, key in condition_keys.items() if name in parameters}
    yield f"arn:aws:iam::{ACCOUNT}:role/{parameters['RoleName']}", keys


def _kms(operation: str, _name: str, parameters: Mapping[str, Any], asked: Keys) -> Found:
    if operation in ("create_key", "list_aliases"):
        yield "*", asked
    if "AliasName" in parameters:
        yield arn("kms", parameters["AliasName"]), {}
    key = parameters.get("KeyId", parameters.get("TargetKeyId"))
    if key:
        yield key if key.startswith("arn:") else arn("kms", f"key/{key}"), None


def _s3(_operation: str, _name: str, parameters: Mapping[str, Any], _asked: Keys) -> Found:
    yield f"arn:aws:s3:::{parameters['Bucket']}", {}


def _logs(operation: str, _name: str, parameters: Mapping[str, Any], _asked: Keys) -> Found:
    name = parameters.get("logGroupName")
    yield (arn("logs", f"log-group:{name}") if name else "*"), {}


def _files(service: str, key: str) -> Any:
    """EFS and FSx: a new resource has the request's tags, an existing one its own."""

    def found(operation: str, _name: str, parameters: Mapping[str, Any], asked: Keys) -> Found:
        if operation in (
            "describe_file_systems",
            "describe_data_repository_associations",
            "describe_mount_targets",
        ):
            yield "*", {}
        elif operation == "create_file_system":
            yield arn(service, "file-system/*"), asked
        elif operation == "create_data_repository_association":
            yield arn(service, "association/*"), asked
        elif operation.endswith("data_repository_association"):
            yield arn(service, f"association/{parameters['AssociationId']}"), None
        else:
            yield arn(service, f"file-system/{parameters.get(key, 'of-the-target')}"), None

    return found


def _backup(operation: str, _name: str, parameters: Mapping[str, Any], asked: Keys) -> Found:
    if vault := parameters.get("BackupVaultName"):
        yield arn("backup", f"backup-vault:{vault}"), {}
    elif operation == "list_backup_plans":
        yield "*", {}
    elif operation == "create_backup_plan":
        yield arn("backup", "backup-plan:*"), asked
    else:
        yield arn("backup", f"backup-plan:{parameters['BackupPlanId']}"), None


def _sqs(_operation: str, _name: str, parameters: Mapping[str, Any], _asked: Keys) -> Found:
    name = parameters.get("QueueName") or parameters["QueueUrl"].rpartition("/")[2]
    yield arn("sqs", name), {}


def _events(_operation: str, _name: str, parameters: Mapping[str, Any], _asked: Keys) -> Found:
    yield arn("events", f"rule/{parameters.get('Rule', parameters.get('Name'))}"), {}


def _autoscaling(operation: str, _name: str, parameters: Mapping[str, Any], _asked: Keys) -> Found:
    if operation.startswith("describe_"):
        yield "*", {}
        return
    # EKS names it eks-NODEGROUP-UUID; moto leaves the node group's name out.
    yield (
        arn("autoscaling", "autoScalingGroup:id:autoScalingGroupName/eks-training-on-demand-us-east-2b-x"),
        {},
    )


_RESOURCES = {
    "ec2": _ec2, "eks": _eks, "iam": _iam, "kms": _kms, "s3": _s3, "logs": _logs, "backup": _backup,
    "sqs": _sqs, "events": _events, "autoscaling": _autoscaling,
    "efs": _files("elasticfilesystem", "FileSystemId"),
    "fsx": _files("fsx", "FileSystemId"),
}  # fmt: skip


class GuardedAccount(MotoAccount):
    """An account that allows what the policies of the stack's role allow, and records the actions."""

    def __init__(self, stack: str, tags: Mapping[str, str], policies: list[Mapping[str, Any]]) -> None:
        super().__init__(REGION)
        self._stack, self._given, self._policies = stack, tags, policies
        self._theirs: dict[str, Keys] = {}
        self.asked: set[str] = set()

    def create(self, resource: RequestedResource) -> CreatedResource:
        made = super().create(replace(resource, default_tags=self._given))
        if boundary := resource.inputs.get("permissionsBoundary"):
            self._theirs[made.outputs["arn"]] = {"iam:PermissionsBoundary": boundary}
        if resource.token.endswith(":Cluster"):
            group = made.outputs["vpcConfig"]["clusterSecurityGroupId"]
            owned = {f"aws:ResourceTag/kubernetes.io/cluster/{resource.inputs['name']}": "owned"}
            self._theirs[arn("ec2", f"security-group/{group}")] = owned
        return made

    def update(self, resource: RequestedResource, inputs: Properties) -> Properties:
        return super().update(replace(resource, default_tags=self._given), inputs)

    def _call(self, request: Request, resource: RequestedResource, **options: Any) -> dict[str, Any] | None:
        for asked in questions(request, self._stack, self._theirs):
            self.asked.add(asked.action)
            if not is_allowed(asked, self._policies):
                raise RefusedError(f"AccessDenied: {asked}")
        return super()._call(request, resource, **options)
