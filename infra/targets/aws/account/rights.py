"""IAM policies and trust policy of the role that deploys (or only previews) a stack on AWS, derived from the
resource types that the stack declares.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from infra.stackfile import Stack
from infra.targets.aws.stackfile.partitions import partition_of
from infra.targets.aws.stackfile.target import AwsSpec
from infra.targets.deploying import DeclaredResource, DeployRole, Pipeline

TAG = "trainyard.dev/stack"
MAX_POLICY_CHARACTERS = 6144
"""Maximum length of a managed policy in characters without white space (IAM and STS quotas)."""
_READS = re.compile(r"(Describe|Get|List)")
_FORBIDDEN_ON_EXISTING = re.compile(r"(Delete|Schedule|Put|Enable|Disable|Update|Tag|Untag)")
"""Actions that are never allowed on resources which the stack uses but did not create."""
_SECTIONS = ("make", "change", "grant", "cluster", "named", "bound", "beside")
_LAUNCHED = ("instance", "volume", "network-interface")
"""Types of resources that a launch template tags."""
UP_SECONDS = 180 * 60
"""Timeout of the job `up` in templates/pipelines/github."""
_PUT_BOUNDARY = "iam:PutRolePermissionsBoundary"
Statement = dict[str, Any]


def deploy_role(
    stack: Stack, spec: AwsSpec, declared: Sequence[DeclaredResource], pipeline: Pipeline
) -> DeployRole:
    """Return the role's trust policy and policies; KeyError for a type that the table lacks."""
    ours = [each for each in declared if each.type.startswith(("aws:", "trainyard:aws:"))]
    statements = list(_Statements(stack, spec, ours, read_only=pipeline.read_only))
    name = f"{stack.name}-{'preview' if pipeline.read_only else 'deploy'}"
    rights = {f"{name}-{index}": each for index, each in enumerate(_documents(statements), start=1)}
    notes = tuple(_notes(stack, spec, read_only=pipeline.read_only))
    return DeployRole(trust(spec, partition_of(spec.region), pipeline), rights, notes=notes)


def _notes(stack: Stack, spec: AwsSpec, *, read_only: bool) -> Iterator[str]:
    yield "the policy that `trainyard stack state-bucket` prints, for the state and its key"
    yield (
        f"do not name the role `{stack.name}-…`: it may change the trust policy of every role with that"
        " prefix"
    )
    if not read_only:
        yield f"a maximum session duration of {UP_SECONDS} seconds: the session must outlast `up` on GitHub"
    if spec.permissions_boundary is None:
        yield (
            "name a managed policy in `target.permissions_boundary`: without one, whoever has this role can"
            f" create a role `{stack.name}-…` with more rights than its own"
        )


def trust(spec: AwsSpec, partition: str, pipeline: Pipeline) -> Mapping[str, Any]:
    """Let the pipeline's jobs assume the role, only on their branch or in their environment."""
    issuer = pipeline.issuer
    by = "StringLike" if any("*" in each for each in pipeline.subjects) else "StringEquals"
    conditions: dict[str, dict[str, Any]] = {"StringEquals": {f"{issuer}:aud": "sts.amazonaws.com"}}
    conditions.setdefault(by, {})[f"{issuer}:sub"] = list(pipeline.subjects)
    statement = {
        "Effect": "Allow",
        "Principal": {"Federated": f"arn:{partition}:iam::{spec.account}:oidc-provider/{issuer}"},
        "Action": "sts:AssumeRoleWithWebIdentity",
        "Condition": conditions,
    }
    return {"Version": "2012-10-17", "Statement": [statement]}


@cache
def table() -> Mapping[str, Any]:
    """Return `rights.yaml`."""
    found: Mapping[str, Any] = yaml.safe_load(files(__package__).joinpath("rights.yaml").read_text())
    return found


class _Statements:
    """Statements for a stack's resources: one per section and ARN, and those with special conditions."""

    def __init__(
        self, stack: Stack, spec: AwsSpec, declared: Sequence[DeclaredResource], *, read_only: bool
    ) -> None:
        self._stack, self._spec, self._declared, self._only_reads = stack, spec, declared, read_only
        cluster = spec.existing_cluster.name if spec.existing_cluster else stack.name
        objects = stack.storage.object_store
        location = {"partition": partition_of(spec.region), "region": spec.region, "account": spec.account}
        names = {"stack": stack.name, "cluster": cluster, "bucket": objects.bucket if objects else ""}
        self._arns = {name: str(arn).format(**location, **names) for name, arn in table()["arns"].items()}
        self._types = [table()["types"][kind] for kind in sorted({each.kind for each in declared})]
        request, resource = ({f"aws:{what}Tag/{TAG}": stack.name} for what in ("Request", "Resource"))
        self._of_cluster = {f"aws:ResourceTag/kubernetes.io/cluster/{cluster}": "owned"}
        self._of_cni = {"aws:ResourceTag/cluster.k8s.amazonaws.com/name": cluster}
        self._resource_tag, self._request_tag = resource, request
        self._conditions: dict[str, Any] = {
            "make": {"StringEquals": request},
            "change": {"StringEquals": resource},
            "grant": {"StringEquals": resource, "Bool": {"kms:GrantIsForAWSResource": "true"}},
            "cluster": {"StringEquals": self._of_cluster},
        }
        if boundary := spec.permissions_boundary:
            # IAM compares the boundary in the request if it sets one, else the role's.
            self._conditions["bound"] = {"StringEquals": {"iam:PermissionsBoundary": boundary}}

    def __iter__(self) -> Iterator[Statement]:
        looks = {action for rights in self._types for action in rights.get("look", ())}
        yield from self._statement("look", looks, {"*"})
        for section in _SECTIONS:
            for name, actions in sorted(self._gathered(section).items()):
                condition = self._conditions.get(section)
                yield from self._statement(f"{section}-{name}", actions, {self._arns[name]}, condition)
        yield from self._on_existing_resources()
        if not self._only_reads:
            yield from self._tagging()
            yield from self._roles()
            yield from self._machines()

    def _gathered(self, section: str) -> dict[str, set[str]]:
        """Name of an ARN → actions of a section, over all types.

        One statement per ARN: in a shared one, each ARN would get the other's actions.
        """
        found: dict[str, set[str]] = defaultdict(set)
        for rights in self._types:
            for name, actions in rights.get(section, {}).items():
                found[name].update(f"{self._service(name)}:{action}" for action in actions)
        if "bound" not in self._conditions:  # without a required boundary, the right would allow any boundary
            found["role"].discard(_PUT_BOUNDARY)
        return found

    def _service(self, name: str) -> str:
        """The service of a named ARN; a key that is not made yet has none."""
        arn = str(table()["arns"][name])
        return "kms" if arn == "*" else arn.split(":")[2]

    def _statement(
        self, name: str, actions: set[str], arns: set[str], condition: Mapping[str, Any] | None = None
    ) -> Iterator[Statement]:
        """Yield a statement, or none where it would allow nothing."""
        granted_actions = {
            each for each in actions if not self._only_reads or _READS.match(each.partition(":")[2])
        }
        if granted_actions:
            sid = "".join(part.capitalize() for part in re.split(r"\W", name))
            granted: Statement = {
                "Sid": sid,
                "Effect": "Allow",
                "Action": sorted(granted_actions),
                "Resource": sorted(arns),
            }
            yield granted | ({"Condition": condition} if condition else {})

    def _on_existing_resources(self) -> Iterator[Statement]:
        """Statements for resources that the stack uses but did not create: named, as they lack its tag."""
        for name, arns in _existing(self._spec, self._arns).items():
            service = self._service(name)
            found = {
                each
                for rights in self._types
                for each in (*self._on(rights, "change", name), *self._on(rights, "grant", name))
            }
            actions = {f"{service}:{each}" for each in found if not _FORBIDDEN_ON_EXISTING.match(each)}
            yield from self._statement(f"lent-{name}", actions, set(arns))

    @staticmethod
    def _on(rights: Mapping[str, Any], section: str, name: str) -> Sequence[str]:
        found: Sequence[str] = rights.get(section, {}).get(name, ())
        return found

    def _tagging(self) -> Iterator[Statement]:
        """Allow EC2's separate tagging action at creation, and on resources that already have our tag.

        A right to tag any resource as the stack's would give all of the stack's rights to it.
        """
        made = {name: each for name, each in self._gathered("make").items() if self._service(name) == "ec2"}
        creations = sorted(each.partition(":")[2] for actions in made.values() for each in actions)
        arns = {self._arns[name] for name in made}
        if not creations:
            return
        at_creation = {
            "StringEquals": {**self._request_tag, "ec2:CreateAction": [*creations, "RunInstances"]}
        }
        template = self._arns["launch-template"]
        machines = {template.replace("launch-template", kind) for kind in _LAUNCHED}
        yield from self._statement("tag-created", {"ec2:CreateTags"}, arns | machines, at_creation)
        tags = {"ec2:CreateTags", "ec2:DeleteTags"}
        yield from self._statement("tag-own", tags, arns, {"StringEquals": self._resource_tag})
        if any(each.kind == "DefaultSecurityGroup" for each in self._declared):  # made by EC2, without a tag
            untagged = {"StringEquals": self._request_tag, "Null": {f"aws:ResourceTag/{TAG}": "true"}}
            group = {self._arns["security-group"]}
            yield from self._statement("tag-default-group", {"ec2:CreateTags"}, group, untagged)

    def _roles(self) -> Iterator[Statement]:
        role = {self._arns["role"]}
        services = sorted({service for rights in self._types for service in rights.get("pass", ())})
        if services:
            to = {"StringEquals": {"iam:PassedToService": services}}
            yield from self._statement("pass-roles", {"iam:PassRole"}, role, to)
        policies = sorted(
            {str(each.inputs["policyArn"]) for each in self._declared if each.kind == "RolePolicyAttachment"}
        )
        if policies:
            attach = {"iam:AttachRolePolicy", "iam:DetachRolePolicy"}
            condition = {"ArnEquals": {"iam:PolicyARN": policies}, **self._conditions.get("bound", {})}
            yield from self._statement("attach", attach, role, condition)

    def _machines(self) -> Iterator[Statement]:
        if any(rights.get("launch") for rights in self._types):
            template = {"ArnLike": {"ec2:LaunchTemplate": self._arns["launch-template"]}}
            yield from self._statement("launch", {"ec2:RunInstances"}, {"*"}, template)
        if any(rights.get("cni") for rights in self._types):
            interfaces = {self._arns["network-interface"]}
            left = {"ec2:DetachNetworkInterface", "ec2:DeleteNetworkInterface"}
            yield from self._statement("cni", left, interfaces, {"StringEquals": self._of_cni})


def _existing(spec: AwsSpec, arns: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
    """Name of an ARN in the table → the ARNs that the stack file has."""
    found: dict[str, list[str]] = defaultdict(list)
    if network := spec.network.existing:
        found["vpc"] = [arns["vpc"].replace("*", network.id)]
        found["subnet"] = [arns["subnet"].replace("*", each) for each in network.subnets.values()]
    if spec.kms_key:
        found["key"] = [spec.kms_key]
    if existing := spec.filesystem.existing:
        found["security-group"].append(arns["security-group"].replace("*", existing.security_group))
        kind = "efs" if spec.filesystem.kind == "efs" else "fsx"
        found[kind] = [arns[kind].replace("*", existing.id)]
    if spec.existing_cluster:
        group = spec.existing_cluster.security_group
        found["security-group"].append(arns["security-group"].replace("*", group))
    return found


def _documents(statements: Sequence[Statement]) -> Iterator[Mapping[str, Any]]:
    """Put the statements into as few policies as take them, in their order."""
    pages: list[list[Statement]] = [[]]
    for statement in statements:
        if len(_text([*pages[-1], statement])) > MAX_POLICY_CHARACTERS:
            pages.append([])
        pages[-1].append(statement)
    for page in pages:
        yield {"Version": "2012-10-17", "Statement": page}


def _text(statements: Sequence[Statement]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements}, separators=(",", ":"))
