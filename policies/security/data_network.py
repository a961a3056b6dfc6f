"""Policy: Azure's accounts, databases, key vaults and registries deny public network access by default."""

from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.rules import SETTINGS, must_avoid

RULES = SETTINGS["security-data-network"]
CLOSED = ("disabled", "securedbyperimeter")


def evaluate(resource: Resource) -> Iterator[Violation]:
    """The public endpoint is off, or is limited to named networks."""
    if resource.type not in RULES["types"]:
        package = resource.type.split(":")[1]
        if package in RULES["packages"] and not any(map(resource.props.data.get, RULES["limits"])):
            yield from must_avoid(resource.props, {"publicNetworkAccess": (("Enabled", True), "Disabled")})
        return
    switch, default_action = RULES["types"][resource.type]
    access = resource.props.get(switch, "Enabled")
    if str(access).lower() in CLOSED:
        return
    if not default_action.endswith("defaultAction"):
        if not resource.props.has(default_action) and not resource.props.get("isVirtualNetworkFilterEnabled"):
            yield Violation(switch, access, f"Disabled, or {default_action}")
    elif str(resource.props.get(default_action, "Allow")).lower() != "deny":
        yield Violation(switch, access, f"Disabled, or {default_action} set to Deny")


POLICY = Policy(
    name="security-data-network",
    title="Data and keys have no endpoint that is open to the internet",
    reason="Azure gives accounts, vaults and registries a public address, where one leaked token is enough.",
    remedy="Turn public access off and make a private endpoint, or deny by default and name the networks.",
    types=("azure-native:*",),
    evaluate=evaluate,
    frameworks=("NIST SP 800-53 SC-7", "NIST SP 800-53 AC-3"),
)
