"""Translates a resource's inputs into the boto3 calls that create and tag it, as the provider would."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from botocore.model import OperationModel, StructureShape

Inputs = Mapping[str, Any]
_TAGS = ("Tags", "tags", "BackupPlanTags", "BackupVaultTags")
"""Request parameters with the tags of the new resource."""
SELF = "{self}"
"""Placeholder in a request for the ID that an earlier request of the same resource returned."""


@dataclass(frozen=True)
class Request:
    """One call of boto3."""

    service: str
    operation: str
    parameters: Mapping[str, Any]
    identity: str = ""
    """Path of the new resource's ID in the answer; empty for a call that creates nothing."""


def requests(token: str, name: str, inputs: Inputs) -> list[Request]:
    """Return the requests that create a resource; KeyError for a type that is not described.

    `name` is what AWS is to call it, where it takes a name.
    """
    return _MAKERS[token.rpartition(":")[2]](name, inputs)


def tagged(request: Request, tags: Mapping[str, str], operation: OperationModel) -> Request:
    """Add tags to a request that makes something, as its service spells them; others remain unchanged."""
    shape = operation.input_shape
    members = shape.members if isinstance(shape, StructureShape) else {}
    if "TagSpecifications" in members:
        kind = operation.name.removeprefix("Create").removeprefix("Allocate")
        kind = _EC2_KINDS.get(kind, re.sub(r"(?<!^)([A-Z])", r"-\1", kind).lower())
        given: Any = [{"ResourceType": kind, "Tags": _tags(tags)}]
        return replace(request, parameters={**request.parameters, "TagSpecifications": given})
    key = next((key for key in _TAGS if key in members), None)
    if key is None or key in request.parameters:
        return request
    given = dict(tags)
    if members[key].type_name == "list":
        first, second = list(members[key].member.members)[:2]  # type: ignore[attr-defined]
        given = [{first: name, second: value} for name, value in tags.items()]
    return replace(request, parameters={**request.parameters, key: given})


def tagging(request: Request, tags: Mapping[str, str]) -> list[Request]:
    """Return the calls that tag what an earlier call has created: S3 has a separate one."""
    if request.operation != "create_bucket" or not tags:
        return []
    parameters = {"Bucket": request.parameters["Bucket"], "Tagging": {"TagSet": _tags(tags)}}
    return [Request("s3", "put_bucket_tagging", parameters)]


def pascal(value: Any) -> Any:
    """Spell keys as most of AWS's services do: `cidrBlock` → `CidrBlock`."""
    if isinstance(value, Mapping):
        return {key[0].upper() + key[1:]: pascal(each) for key, each in value.items()}
    if isinstance(value, list):
        return [pascal(each) for each in value]
    return value


def _truths(value: Any) -> Any:
    """Convert strings to booleans: a launch template has strings, to allow a third value, unset."""
    if isinstance(value, Mapping):
        return {key: _truths(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_truths(each) for each in value]
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value


def _only(inputs: Inputs, *keys: str) -> dict[str, Any]:
    return {key: inputs[key] for key in keys if key in inputs}


def _tags(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def _renamed(
    service: str, operation: str, identity: str = "", *, called: str = "", **parameters: str
) -> Callable[[str, Inputs], list[Request]]:
    """Take each parameter from an input of another name, and that which is `called` from the resource's."""

    def made(name: str, inputs: Inputs) -> list[Request]:
        found = {key: inputs[given] for key, given in parameters.items()}
        return [Request(service, operation, {called: name, **found} if called else found, identity)]

    return made


def _ec2(operation: str, identity: str, *keys: str) -> Callable[[str, Inputs], list[Request]]:
    return lambda _name, inputs: [Request("ec2", operation, pascal(_only(inputs, *keys)), identity)]


def _vpc(_name: str, inputs: Inputs) -> list[Request]:
    switches = [key for key in ("enableDnsSupport", "enableDnsHostnames") if key in inputs]
    return [
        Request("ec2", "create_vpc", pascal(_only(inputs, "cidrBlock")), "Vpc.VpcId"),
        *(
            Request("ec2", "modify_vpc_attribute", {"VpcId": SELF, **pascal({key: {"value": inputs[key]}})})
            for key in switches
        ),
    ]


def _internet_gateway(_name: str, inputs: Inputs) -> list[Request]:
    attach = {"InternetGatewayId": SELF, "VpcId": inputs["vpcId"]}
    return [
        Request("ec2", "create_internet_gateway", {}, "InternetGateway.InternetGatewayId"),
        Request("ec2", "attach_internet_gateway", attach),
    ]


def _default_group(_name: str, inputs: Inputs) -> list[Request]:
    filters = [{"Name": "vpc-id", "Values": [inputs["vpcId"]]}, {"Name": "group-name", "Values": ["default"]}]
    every = [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
    return [
        Request("ec2", "describe_security_groups", {"Filters": filters}, "SecurityGroups[0].GroupId"),
        Request("ec2", "revoke_security_group_egress", {"GroupId": SELF, "IpPermissions": every}),
    ]


def _security_group(name: str, inputs: Inputs) -> list[Request]:
    group = {"GroupName": name, **pascal(_only(inputs, "description", "vpcId"))}
    made = Request("ec2", "create_security_group", group, "GroupId")
    return [
        made,
        *(
            Request(
                "ec2",
                f"authorize_security_group_{direction}",
                {"GroupId": SELF, "IpPermissions": [_permission(rule) for rule in inputs[direction]]},
            )
            for direction in ("ingress", "egress")
            if direction in inputs
        ),
    ]


def _permission(rule: Inputs) -> dict[str, Any]:
    groups = [*rule.get("securityGroups", ()), *([SELF] if rule.get("self") else [])]
    return {
        "IpProtocol": rule["protocol"],
        "FromPort": rule["fromPort"],
        "ToPort": rule["toPort"],
        "UserIdGroupPairs": [{"GroupId": group} for group in groups],
        "IpRanges": [{"CidrIp": cidr} for cidr in rule.get("cidrBlocks", ())],
    }


def _ingress_rule(_name: str, inputs: Inputs) -> list[Request]:
    is_by_group = "referencedSecurityGroupId" in inputs
    source = (
        {"UserIdGroupPairs": [{"GroupId": inputs["referencedSecurityGroupId"]}]}
        if is_by_group
        else {"IpRanges": [{"CidrIp": inputs["cidrIpv4"]}]}
    )
    rule = {"IpProtocol": inputs["ipProtocol"], **source}
    rule |= pascal(_only(inputs, "fromPort", "toPort"))
    parameters = {"GroupId": inputs["securityGroupId"], "IpPermissions": [rule]}
    rule_id = "SecurityGroupRules[0].SecurityGroupRuleId"
    return [Request("ec2", "authorize_security_group_ingress", parameters, rule_id)]


def _flow_log(_name: str, inputs: Inputs) -> list[Request]:
    parameters = {
        "ResourceIds": [inputs["vpcId"]],
        "ResourceType": "VPC",
        "DeliverLogsPermissionArn": inputs["iamRoleArn"],
        "LogGroupName": re.sub(r".*/log-group:", "", inputs["logDestination"]),
        **pascal(_only(inputs, "trafficType", "logDestinationType", "maxAggregationInterval")),
    }
    return [Request("ec2", "create_flow_logs", parameters, "FlowLogIds[0]")]


def _launch_template(name: str, inputs: Inputs) -> list[Request]:
    ours = ("region", "name", "tags", "updateDefaultVersion", "vpcSecurityGroupIds", "tagSpecifications")
    data = _truths(pascal({key: value for key, value in inputs.items() if key not in ours}))
    for interface in data.get("NetworkInterfaces", ()):
        interface["Groups"] = interface.pop("SecurityGroups")
    if "vpcSecurityGroupIds" in inputs:
        data["SecurityGroupIds"] = inputs["vpcSecurityGroupIds"]
    data["TagSpecifications"] = [
        {"ResourceType": each["resourceType"], "Tags": _tags(each["tags"])}
        for each in inputs["tagSpecifications"]
    ]
    parameters = {"LaunchTemplateName": name, "LaunchTemplateData": data}
    return [Request("ec2", "create_launch_template", parameters, "LaunchTemplate.LaunchTemplateId")]


def _role(name: str, inputs: Inputs) -> list[Request]:
    parameters = {"RoleName": name, "AssumeRolePolicyDocument": inputs["assumeRolePolicy"]}
    if boundary := inputs.get("permissionsBoundary"):
        parameters["PermissionsBoundary"] = boundary
    return [Request("iam", "create_role", parameters, "Role.Arn")]


def _key(_name: str, inputs: Inputs) -> list[Request]:
    parameters = pascal(_only(inputs, "description", "policy", "multiRegion"))
    return [
        Request("kms", "create_key", parameters, "KeyMetadata.Arn"),
        Request("kms", "enable_key_rotation", {"KeyId": SELF}),
    ]


def _log_group(_name: str, inputs: Inputs) -> list[Request]:
    group = {"logGroupName": inputs["name"]}
    days = {"retentionInDays": inputs["retentionInDays"]}
    return [
        Request("logs", "create_log_group", {**group, **_only(inputs, "kmsKeyId")}),
        Request("logs", "put_retention_policy", {**group, **days}),
    ]


def _log_metric_filter(_name: str, inputs: Inputs) -> list[Request]:
    metric = inputs["metricTransformation"]
    transformation = {f"metric{key.capitalize()}": metric[key] for key in ("name", "namespace", "value")}
    parameters = {
        "logGroupName": inputs["logGroupName"],
        "filterName": inputs["name"],
        "filterPattern": inputs["pattern"],
        "metricTransformations": [transformation],
    }
    return [Request("logs", "put_metric_filter", parameters)]


def _bucket(_name: str, inputs: Inputs) -> list[Request]:
    return [Request("s3", "create_bucket", {"Bucket": inputs["bucket"], **bucket_location(inputs["region"])})]


def bucket_location(region: str) -> dict[str, Any]:
    """Return the region parameters of a request for a bucket: empty for us-east-1, which S3 refuses as a
    constraint (API reference, CreateBucket).
    """
    return {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}


def _bucket_part(operation: str, key: str, part: Callable[[Inputs], Any]) -> Callable[..., list[Request]]:
    return lambda _name, inputs: [Request("s3", operation, {"Bucket": inputs["bucket"], key: part(inputs)})]


def _encryption(inputs: Inputs) -> dict[str, Any]:
    (rule,) = inputs["rules"]
    default = rule["applyServerSideEncryptionByDefault"]
    by_default = {"SSEAlgorithm": default["sseAlgorithm"], "KMSMasterKeyID": default["kmsMasterKeyId"]}
    applied = {"ApplyServerSideEncryptionByDefault": by_default, "BucketKeyEnabled": rule["bucketKeyEnabled"]}
    return {"Rules": [applied]}


def _lifecycle(inputs: Inputs) -> dict[str, Any]:
    rules = pascal(inputs["rules"])
    for rule, given in zip(rules, inputs["rules"], strict=True):
        rule["ID"] = rule.pop("Id")
        if tags := given.get("filter", {}).get("and", {}).get("tags"):
            rule["Filter"]["And"]["Tags"] = _tags(tags)
    return {"Rules": rules}


def _cluster(_name: str, inputs: Inputs) -> list[Request]:
    config = {
        **_only(inputs["vpcConfig"], "subnetIds", "endpointPublicAccess", "endpointPrivateAccess"),
        **({"publicAccessCidrs": cidrs} if (cidrs := inputs["vpcConfig"].get("publicAccessCidrs")) else {}),
    }
    logs = [{"types": inputs["enabledClusterLogTypes"], "enabled": True}]
    parameters = {
        **_only(inputs, "name", "version", "roleArn", "accessConfig", "upgradePolicy", "zonalShiftConfig"),
        **_only(inputs, "deletionProtection"),
        "bootstrapSelfManagedAddons": inputs["bootstrapSelfManagedAddons"],
        "resourcesVpcConfig": config,
        "logging": {"clusterLogging": logs},
        "encryptionConfig": [inputs["encryptionConfig"]],
    }
    return [Request("eks", "create_cluster", parameters)]


def _node_group(name: str, inputs: Inputs) -> list[Request]:
    same = ("clusterName", "amiType", "capacityType", "instanceTypes", "launchTemplate", "scalingConfig")
    parameters = {
        "nodegroupName": name,
        "nodeRole": inputs["nodeRoleArn"],
        "subnets": inputs["subnetIds"],
        **_only(inputs, *same, "labels", "taints", "updateConfig", "nodeRepairConfig", "version", "tags"),
    }
    return [Request("eks", "create_nodegroup", parameters)]


def _schedule(_name: str, inputs: Inputs) -> list[Request]:
    same = ("minSize", "maxSize", "desiredCapacity", "startTime", "endTime", "recurrence")
    parameters = {
        "AutoScalingGroupName": inputs["autoscalingGroupName"],
        "ScheduledActionName": inputs["scheduledActionName"],
        **pascal(_only(inputs, *same)),
    }
    return [Request("autoscaling", "put_scheduled_update_group_action", parameters)]


def _scaling_group_tag(_name: str, inputs: Inputs) -> list[Request]:
    tag = {"ResourceId": inputs["autoscalingGroupName"], "ResourceType": "auto-scaling-group"}
    return [Request("autoscaling", "create_or_update_tags", {"Tags": [{**tag, **pascal(inputs["tag"])}]})]


def _eks(operation: str, *keys: str) -> Callable[[str, Inputs], list[Request]]:
    return lambda _name, inputs: [Request("eks", operation, _only(inputs, *keys))]


def _addon(_name: str, inputs: Inputs) -> list[Request]:
    parameters = {
        **_only(inputs, "clusterName", "addonName", "configurationValues", "podIdentityAssociations"),
        "resolveConflicts": inputs["resolveConflictsOnCreate"],
    }
    return [Request("eks", "create_addon", parameters)]


def _lustre(_name: str, inputs: Inputs) -> list[Request]:
    same = (
        "deploymentType",
        "perUnitStorageThroughput",
        "dataCompressionType",
        "automaticBackupRetentionDays",
    )
    parameters = {
        "FileSystemType": "LUSTRE",
        "SubnetIds": [inputs["subnetIds"]],
        **pascal(_only(inputs, "storageCapacity", "storageType", "securityGroupIds", "kmsKeyId")),
        "FileSystemTypeVersion": inputs["fileSystemTypeVersion"],
        "LustreConfiguration": {
            **pascal(_only(inputs, *same, "efaEnabled")),
            "MetadataConfiguration": pascal(inputs["metadataConfiguration"]),
        },
    }
    return [Request("fsx", "create_file_system", parameters, "FileSystem.FileSystemId")]


def _link(_name: str, inputs: Inputs) -> list[Request]:
    same = ("fileSystemId", "fileSystemPath", "dataRepositoryPath", "batchImportMetaDataOnCreate")
    parameters = {**pascal(_only(inputs, *same)), "S3": pascal(inputs["s3"])}
    return [Request("fsx", "create_data_repository_association", parameters)]


def _efs(name: str, inputs: Inputs) -> list[Request]:
    same = ("encrypted", "kmsKeyId", "performanceMode", "throughputMode")
    parameters = {"CreationToken": name, **pascal(_only(inputs, *same))}
    return [Request("efs", "create_file_system", parameters, "FileSystemId")]


def _backup_plan(_name: str, inputs: Inputs) -> list[Request]:
    rules = [
        {
            "RuleName": rule["ruleName"],
            "TargetBackupVaultName": rule["targetVaultName"],
            "ScheduleExpression": rule["schedule"],
            "Lifecycle": {"DeleteAfterDays": rule["lifecycle"]["deleteAfter"]},
        }
        for rule in inputs["rules"]
    ]
    plan = {"BackupPlanName": inputs["name"], "Rules": rules}
    return [Request("backup", "create_backup_plan", {"BackupPlan": plan}, "BackupPlanId")]


def _backup_selection(_name: str, inputs: Inputs) -> list[Request]:
    chosen = {"SelectionName": inputs["name"], **pascal(_only(inputs, "iamRoleArn", "resources"))}
    parameters = {"BackupPlanId": inputs["planId"], "BackupSelection": chosen}
    return [Request("backup", "create_backup_selection", parameters, "SelectionId")]


def _queue(_name: str, inputs: Inputs) -> list[Request]:
    attributes = pascal(_only(inputs, "kmsMasterKeyId"))
    attributes["MessageRetentionPeriod"] = str(inputs["messageRetentionSeconds"])
    parameters = {"QueueName": inputs["name"], "Attributes": attributes}
    return [Request("sqs", "create_queue", parameters, "QueueUrl")]


def _queue_policy(_name: str, inputs: Inputs) -> list[Request]:
    parameters = {"QueueUrl": inputs["queueUrl"], "Attributes": {"Policy": inputs["policy"]}}
    return [Request("sqs", "set_queue_attributes", parameters)]


def _target(name: str, inputs: Inputs) -> list[Request]:
    parameters = {"Rule": inputs["rule"], "Targets": [{"Id": name, "Arn": inputs["arn"]}]}
    return [Request("events", "put_targets", parameters)]


_EC2_KINDS = {
    "FlowLogs": "vpc-flow-log",
    "NatGateway": "natgateway",
    "Address": "elastic-ip",
    "AuthorizeSecurityGroupIngress": "security-group-rule",
}
_BLOCKS = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
_ENDPOINT: Sequence[str] = (
    *("vpcId", "serviceName", "vpcEndpointType", "routeTableIds", "subnetIds", "securityGroupIds"),
    "privateDnsEnabled",
)
_MAKERS: Mapping[str, Callable[[str, Inputs], list[Request]]] = {
    "AccessEntry": _eks("create_access_entry", "clusterName", "principalArn", "type"),
    "AccessPolicyAssociation": _eks(
        "associate_access_policy", "clusterName", "principalArn", "policyArn", "accessScope"
    ),
    "Addon": _addon,
    "Alias": _renamed("kms", "create_alias", AliasName="name", TargetKeyId="targetKeyId"),
    "Bucket": _bucket,
    "BucketLifecycleConfiguration": _bucket_part(
        "put_bucket_lifecycle_configuration", "LifecycleConfiguration", _lifecycle
    ),
    "BucketPolicy": _bucket_part("put_bucket_policy", "Policy", lambda inputs: inputs["policy"]),
    "BucketPublicAccessBlock": _bucket_part(
        "put_public_access_block",
        "PublicAccessBlockConfiguration",
        lambda inputs: pascal(_only(inputs, *_BLOCKS)),
    ),
    "BucketServerSideEncryptionConfiguration": _bucket_part(
        "put_bucket_encryption", "ServerSideEncryptionConfiguration", _encryption
    ),
    "BucketVersioning": _bucket_part(
        "put_bucket_versioning",
        "VersioningConfiguration",
        lambda inputs: pascal(inputs["versioningConfiguration"]),
    ),
    "Cluster": _cluster,
    "DataRepositoryAssociation": _link,
    "DefaultSecurityGroup": _default_group,
    "Eip": _ec2("allocate_address", "AllocationId", "domain"),
    "EventRule": _renamed("events", "put_rule", Name="name", EventPattern="eventPattern"),
    "EventTarget": _target,
    "FileSystem": _efs,
    "FlowLog": _flow_log,
    "InternetGateway": _internet_gateway,
    "Key": _key,
    "LaunchTemplate": _launch_template,
    "LogGroup": _log_group,
    "LogMetricFilter": _log_metric_filter,
    "LustreFileSystem": _lustre,
    "MountTarget": _renamed(
        *("efs", "create_mount_target", "MountTargetId"),
        FileSystemId="fileSystemId",
        SubnetId="subnetId",
        SecurityGroups="securityGroups",
    ),
    "NatGateway": _ec2("create_nat_gateway", "NatGateway.NatGatewayId", "subnetId", "allocationId"),
    "NodeGroup": _node_group,
    "PlacementGroup": _renamed("ec2", "create_placement_group", called="GroupName", Strategy="strategy"),
    "Plan": _backup_plan,
    "PodIdentityAssociation": _eks(
        "create_pod_identity_association", "clusterName", "namespace", "serviceAccount", "roleArn"
    ),
    "Queue": _queue,
    "QueuePolicy": _queue_policy,
    "Role": _role,
    "RolePolicy": _renamed(
        "iam", "put_role_policy", called="PolicyName", RoleName="role", PolicyDocument="policy"
    ),
    "RolePolicyAttachment": _renamed("iam", "attach_role_policy", RoleName="role", PolicyArn="policyArn"),
    "Route": _ec2("create_route", "", "routeTableId", "destinationCidrBlock", "gatewayId", "natGatewayId"),
    "RouteTable": _ec2("create_route_table", "RouteTable.RouteTableId", "vpcId"),
    "RouteTableAssociation": _ec2("associate_route_table", "AssociationId", "routeTableId", "subnetId"),
    "Schedule": _schedule,
    "SecurityGroup": _security_group,
    "SecurityGroupIngressRule": _ingress_rule,
    "Selection": _backup_selection,
    "Subnet": _ec2("create_subnet", "Subnet.SubnetId", "vpcId", "availabilityZone", "cidrBlock"),
    "Tag": _scaling_group_tag,
    "Vault": _renamed("backup", "create_backup_vault", BackupVaultName="name", EncryptionKeyArn="kmsKeyArn"),
    "Vpc": _vpc,
    "VpcEndpoint": _ec2("create_vpc_endpoint", "VpcEndpoint.VpcEndpointId", *_ENDPOINT),
}
