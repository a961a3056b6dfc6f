"""Policy: where a residency is declared, FSx filesystems link only to buckets that the parameter `inside`
lists.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.rules import INSIDE_PARAMETER, must_be_listed

LINKS = ("dataRepositoryPath", "importPath", "exportPath")


def evaluate(resource: Resource) -> Iterator[Violation]:
    """A bucket's name has no region, so each linked bucket must be listed as known."""
    for name in LINKS:
        path = resource.props.get(name)
        if path is not None:
            bucket = "/".join(path.split("/")[:3])
            yield from must_be_listed(resource, name, bucket)


POLICY = Policy(
    name="residency-filesystem-links",
    title="Filesystems link to known buckets only",
    reason="A repository link exports what is written to the filesystem, wherever the bucket is.",
    remedy="Add `s3://bucket` of a bucket in a permitted region to `inside`, or remove the link.",
    types=(
        "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation",
        "aws:fsx/lustreFileSystem:LustreFileSystem",
    ),
    evaluate=evaluate,
    frameworks=("GDPR Art. 44", "NIST SP 800-53 SA-9(5)"),
    parameters=INSIDE_PARAMETER,
)
