"""Policy: EC2's instance metadata requires session tokens (IMDSv2); GKE nodes run GKE's metadata server."""

from collections.abc import Iterator, Mapping

from policies.policy import Policy, Resource, Violation
from policies.rules import must_equal
from policies.unknowns import Value


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Session tokens on EC2; on GKE the workload identity server instead of the node's metadata server."""
    if resource.type.startswith("aws:"):
        if resource.props.get("metadataOptions.httpEndpoint") != "disabled":
            yield from must_equal(
                resource.props, "metadataOptions.httpTokens", "required", default="optional"
            )
    else:
        path = "nodeConfig.workloadMetadataConfig.mode"
        yield from must_equal(resource.props, path, "GKE_METADATA")


def remediate(resource: Resource) -> Mapping[str, Value]:
    """Require session tokens: clients that use them are not affected."""
    if resource.type.startswith("aws:") and resource.props.get("metadataOptions.httpTokens") != "required":
        return {"metadataOptions.httpTokens": "required"}
    return {}


POLICY = Policy(
    name="security-instance-metadata",
    title="Instance metadata needs a session",
    reason="With version 1, one forged request from a pod is enough to take the node's credentials.",
    remedy="Set httpTokens to required, or the workload metadata mode to GKE_METADATA.",
    types=("aws:ec2/launch*:Launch*", "aws:ec2/instance:Instance", "gcp:container/nodePool:NodePool"),
    evaluate=evaluate,
    remediate=remediate,
    frameworks=("AWS FSBP EC2.8", "AWS FSBP EC2.170", "CIS GKE 5.4.2", "NIST SP 800-53 AC-3"),
)
