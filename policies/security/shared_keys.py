"""Policy: AKS has no local accounts, GKE no client certificates and no legacy ABAC, Azure's storage accounts
and registries no keys of their own, and nobody a key of a cloud that does not expire.
"""

from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.rules import SETTINGS, must_avoid, must_equal, refused

LASTING = ("aws:iam/accessKey:AccessKey", "gcp:serviceaccount/key:Key")


def evaluate(resource: Resource) -> Iterator[Violation]:
    """No local accounts, no client certificates, no account keys: what has no name cannot be taken away."""
    props = resource.props
    yield from must_avoid(props, refused("security-shared-keys"))
    if resource.type in LASTING:
        yield Violation("type", "a key that does not expire", "an identity of the cloud, or federation")
    elif default := SETTINGS["security-shared-keys"]["types"].get(resource.type):
        yield from must_equal(props, *default)


POLICY = Policy(
    name="security-shared-keys",
    title="Access is by identity, not by shared keys",
    reason="A shared key has no owner: its use cannot be traced, and it works until it is rotated for all.",
    remedy="Turn the shared access off, and grant roles to identities.",
    types=("azure-native:*", "gcp:*", LASTING[0]),
    evaluate=evaluate,
    frameworks=("NIST SP 800-53 IA-2", "NIST SP 800-53 AC-2"),
)
