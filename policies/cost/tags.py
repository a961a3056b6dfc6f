"""Policy: resources that cost money carry the required tags, such as an owner; adds configured ones."""

import json
from collections.abc import Iterator, Mapping

from policies.policy import Policy, Resource, Severity, Violation, parameter, texts
from policies.unknowns import Value

TAGS_OF = {
    "aws:eks/cluster:Cluster": "tags",
    "aws:eks/nodeGroup:NodeGroup": "tags",
    "aws:ec2/instance:Instance": "tags",
    "aws:ec2/capacityBlockReservation:CapacityBlockReservation": "tags",
    "aws:ebs/volume:Volume": "tags",
    "aws:efs/fileSystem:FileSystem": "tags",
    "aws:fsx/lustreFileSystem:LustreFileSystem": "tags",
    "aws:s3/bucket:Bucket": "tags",
    "gcp:container/cluster:Cluster": "resourceLabels",
    "gcp:container/nodePool:NodePool": "nodeConfig.resourceLabels",
    "gcp:compute/disk:Disk": "labels",
    "gcp:filestore/instance:Instance": "labels",
    "gcp:lustre/instance:Instance": "labels",
    "gcp:storage/bucket:Bucket": "labels",
    "azure-native:containerservice:ManagedCluster": "tags",
    "azure-native:containerservice:AgentPool": "tags",
    "azure-native:compute:Disk": "tags",
    "azure-native:storage:StorageAccount": "tags",
    "azure-native:storagecache:AmlFilesystem": "tags",
}


def evaluate(resource: Resource) -> Iterator[Violation]:
    """The required tags are on the resource or in its provider's defaults."""
    path = TAGS_OF[resource.type]
    if missing := _missing(resource):
        yield Violation(path, f"no {', '.join(missing)}", ", ".join(resource.parameters["required"]))


def remediate(resource: Resource) -> Mapping[str, Value]:
    """Add what is missing from the configured values."""
    values = resource.parameters["values"]
    path = TAGS_OF[resource.type]
    return {f"{path}.{name}": values[name] for name in _missing(resource) if name in values}


def _missing(resource: Resource) -> list[str]:
    tags = {*resource.props.block(TAGS_OF[resource.type]).keys(), *_defaults(resource)}
    return [name for name in resource.parameters["required"] if name not in tags]


def _defaults(resource: Resource) -> set[str]:
    """Names of the tags that the provider puts on everything; its structured inputs are JSON text."""
    props = resource.provider.props
    names: set[str] = set()
    for name in ("defaultTags", "defaultLabels"):
        value = props.get(name)
        if isinstance(value, str):
            data = json.loads(value)
            names |= set(data.get("tags", data))
        elif value is not None:
            tags = value.block("tags")
            names |= set((tags if tags.data else value).keys())
    return names


POLICY = Policy(
    name="cost-tags",
    title="Charged resources have the tags that the organisation requires",
    reason="Costs can only be allocated and stopped if they have an owner.",
    remedy="Set the tags on the resource, or once in the provider's default tags.",
    types=tuple(TAGS_OF),
    evaluate=evaluate,
    remediate=remediate,
    severity=Severity.MEDIUM,
    frameworks=("AWS Well-Architected COST03-BP02", "FinOps: Allocation", "NIST SP 800-53 CM-8"),
    parameters={
        "required": texts("Names of the tags (labels) that an organisation requires."),
        "values": parameter(
            "object", {}, "Values that `remediate` fills in.", additionalProperties={"type": "string"}
        ),
    },
)
