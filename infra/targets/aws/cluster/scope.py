"""`Scope`: names, tags, ARNs and resource options for every part of the AWS target."""

from dataclasses import dataclass

from infra.targets.aws.stackfile.partitions import partition_of
from infra.targets.aws.stackfile.target import AwsSpec
from infra.targets.scope import CloudScope

MAX_TAG_VALUE = 256
_TAG_PUNCTUATION = "_.:/=+-@"
"""Characters in tags besides letters, digits and spaces (AWS, "Best practices for tagging AWS resources")."""


@dataclass(frozen=True)
class Scope(CloudScope):
    """The scope of a stack on AWS."""

    spec: AwsSpec

    @property
    def cluster_name(self) -> str:
        """Name of the cluster: the stack's own, unless there is one already."""
        existing = self.spec.existing_cluster
        return existing.name if existing else self.name

    @property
    def region(self) -> str:
        """Set on every resource with a `region`, which takes precedence over the provider's."""
        return self.spec.region

    @property
    def partition(self) -> str:
        """First part of every ARN."""
        return partition_of(self.region)

    @property
    def tags(self) -> dict[str, str]:
        """Tags of every resource; those that EC2 makes from a template are not given the provider's."""
        return tags_of(self.name, self.spec)

    def arn(self, service: str, resource: str) -> str:
        """ARN of something of this account and region, whose name we choose."""
        return f"arn:{self.partition}:{service}:{self.region}:{self.spec.account}:{resource}"

    def role_arn(self, path: str) -> str:
        """ARN of a role of this account."""
        return f"arn:{self.partition}:iam::{self.spec.account}:role/{path}"


def tags_of(name: str, spec: AwsSpec) -> dict[str, str]:
    """Tags of every resource of a stack."""
    return {"trainyard.dev/stack": name, **spec.tags}


def tag_value(text: str) -> str:
    """Return a text as a tag's value: without characters that tags forbid, cut to the maximum length."""
    plain = "".join(
        each if each.isalnum() or each in _TAG_PUNCTUATION else " " for each in text.replace("'", "")
    )
    return " ".join(plain.split())[:MAX_TAG_VALUE].rstrip()
