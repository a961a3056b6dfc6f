"""Policy: a control plane's endpoint is private or limited to narrow networks, and GKE nodes are private.

With `public_endpoint: never`, every endpoint must be private. Otherwise the clouds in `unlimited` may have a
public endpoint without limits: by default CoreWeave, whose provider cannot limit it to networks.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from ipaddress import ip_network

from policies.policy import Policy, Resource, Severity, Violation, parameter
from policies.rules import NOTHING, independent, must_equal

SITE_PREFIX = 48
"""Shortest permitted IPv6 prefix: the network of one site (RFC 6177)."""


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Check each target's property for a private API server, with the property's default."""
    yield from _RULES[resource.type](resource)


def _eks(resource: Resource) -> Iterator[Violation]:
    switch = "vpcConfig.endpointPublicAccess"
    if _is_never_public(resource):
        yield from must_equal(resource.props, switch, False, default=True)
    elif resource.props.get(switch, True):
        # EKS takes 0.0.0.0/0 where no network is named.
        yield from _limited(resource, "vpcConfig.publicAccessCidrs", f"{switch}: false")


def _gke(resource: Resource) -> Iterator[Violation]:
    props, switch = resource.props, "privateClusterConfig.enablePrivateEndpoint"
    has_address = props.get("controlPlaneEndpointsConfig.ipEndpointsConfig.enabled", True)
    yield from must_equal(props, "privateClusterConfig.enablePrivateNodes", True, default=False)
    if _is_never_public(resource):
        if has_address:
            yield from must_equal(props, switch, True, default=False)
        # The DNS endpoint checks IAM before it forwards a call, and accepts connections from anywhere.
        external = "controlPlaneEndpointsConfig.dnsEndpointConfig.allowExternalTraffic"
        yield from must_equal(props, external, False, default=False)
    elif has_address and not props.get(switch, False):
        blocks = props.blocks("masterAuthorizedNetworksConfig.cidrBlocks")
        named = [str(block.get("cidrBlock", NOTHING)) for block in blocks]
        yield from _limited(resource, "masterAuthorizedNetworksConfig.cidrBlocks", f"{switch}: true", named)
        # All addresses of Google Cloud, which includes those of every other customer.
        yield from must_equal(
            props, "masterAuthorizedNetworksConfig.gcpPublicCidrsAccessEnabled", False, False
        )


def _aks(resource: Resource) -> Iterator[Violation]:
    switch = "apiServerAccessProfile.enablePrivateCluster"
    if _is_never_public(resource):
        yield from must_equal(resource.props, switch, True, default=False)
    elif not resource.props.get(switch, False):
        yield from _limited(resource, "apiServerAccessProfile.authorizedIPRanges", f"{switch}: true")


def _cks(resource: Resource) -> Iterator[Violation]:
    """CoreWeave's provider has a switch and no list of networks (pulumi-coreweave 1.0.3)."""
    if _is_never_public(resource) or "coreweave" not in resource.parameters["unlimited"]:
        yield from must_equal(resource.props, "public", False, default=False)
    elif resource.props.get("public"):
        yield Violation("public", "true, open to every network", "false", is_advice=True)


def _is_never_public(resource: Resource) -> bool:
    return bool(resource.parameters["public_endpoint"] == "never")


@independent
def _limited(
    resource: Resource, path: str, otherwise: str, networks: Sequence[str] | None = None
) -> Iterator[Violation]:
    """A public endpoint names its networks, each narrow; `otherwise` is the setting of a private one."""
    found = resource.props.texts(path) if networks is None else networks
    widest = resource.parameters["widest_prefix"]
    allowed = f"networks of /{widest} or narrower, or {otherwise}"
    if not found:
        yield Violation(resource.props.at(path), NOTHING, allowed)
    for network in found:
        if not _is_narrow(network, widest):
            yield Violation(resource.props.at(path), network, allowed)


def _is_narrow(text: str, widest: int) -> bool:
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        return False
    return network.prefixlen >= (widest if network.version == 4 else SITE_PREFIX)


_RULES: Mapping[str, Callable[[Resource], Iterator[Violation]]] = {
    "aws:eks/cluster:Cluster": _eks,
    "gcp:container/cluster:Cluster": _gke,
    "azure-native:containerservice:ManagedCluster": _aks,
    "coreweave:index/cksCluster:CksCluster": _cks,
}

POLICY = Policy(
    name="security-private-endpoint",
    title="Control planes are private, or open to named networks only",
    reason="The API server holds all secrets; with an open endpoint one leaked token is enough.",
    remedy="Make the endpoint private, or name the networks from which it is used.",
    types=tuple(_RULES),
    evaluate=evaluate,
    severity=Severity.CRITICAL,
    frameworks=("AWS FSBP EKS.1", "CIS EKS 5.4.2", "CIS GKE 5.6.4", "NIST SP 800-53 SC-7"),
    parameters={
        "public_endpoint": parameter(
            "string",
            "limited",
            "Whether an API server may be reached from outside its network: `limited` to "
            "named networks, or to callers that IAM authorizes (GKE's DNS endpoint); or `never`.",
            enum=["limited", "never"],
        ),
        "widest_prefix": parameter(
            "integer", 24, "Shortest prefix of an IPv4 network that may be named.", minimum=1, maximum=32
        ),
        "unlimited": parameter(
            "array",
            ["coreweave"],
            "Clouds whose public endpoint may take connections from anywhere, since their "
            "provider names no networks.",
            items={"type": "string", "enum": ["coreweave"]},
        ),
    },
)
