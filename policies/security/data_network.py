"""Policy: Azure storage accounts, key vaults and registries deny public network access by default."""

from __future__ import annotations

from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation

NETWORK_RULES = {
    "azure-native:storage:StorageAccount": ("publicNetworkAccess", "networkRuleSet.defaultAction"),
    "azure-native:keyvault:Vault": ("properties.publicNetworkAccess", "properties.networkAcls.defaultAction"),
    "azure-native:containerregistry:Registry": ("publicNetworkAccess", "networkRuleSet.defaultAction"),
}
"""Type → property of the public endpoint, and property of the default action for unlisted sources."""
CLOSED = ("disabled", "securedbyperimeter")


def evaluate(resource: Resource) -> Iterator[Violation]:
    """The public endpoint is off, or is limited to named networks."""
    switch, default_action = NETWORK_RULES[resource.type]
    access = resource.props.get(switch, "Enabled")
    if str(access).lower() in CLOSED:
        return
    if str(resource.props.get(default_action, "Allow")).lower() != "deny":
        yield Violation(switch, access, f"Disabled, or {default_action} set to Deny")


POLICY = Policy(
    name="security-data-network",
    title="Data and keys have no endpoint that is open to the internet",
    reason="Azure gives accounts, vaults and registries a public address, where one leaked token is enough.",
    remedy="Turn public access off and make a private endpoint, or deny by default and name the networks.",
    types=tuple(NETWORK_RULES),
    evaluate=evaluate,
    frameworks=("NIST SP 800-53 SC-7", "NIST SP 800-53 AC-3"),
)
