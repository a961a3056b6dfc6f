"""Policy: Kubernetes Services have no node ports or external IPs, and their load balancers are internal or
limited to source ranges.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_network

from policies.policy import Policy, Resource, Violation

INTERNAL = {
    "service.beta.kubernetes.io/aws-load-balancer-internal": "true",
    "service.beta.kubernetes.io/aws-load-balancer-scheme": "internal",
    "service.beta.kubernetes.io/azure-load-balancer-internal": "true",
    "networking.gke.io/load-balancer-type": "internal",
    "cloud.google.com/load-balancer-type": "internal",
}
"""Annotations that make a load balancer internal, with their values in lower case."""

BROADEST_PREFIX = 8
"""Shortest permitted prefix of a source range; a wider one counts as the public internet."""


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Load balancers are internal or take few sources; node ports and external addresses are not used."""
    spec = resource.props.block("spec")
    kind = spec.get("type", "ClusterIP")
    if kind == "NodePort":
        yield Violation(spec.at("type"), kind, "ClusterIP, or an internal LoadBalancer")
    if spec.texts("externalIPs"):
        yield Violation(spec.at("externalIPs"), ", ".join(spec.texts("externalIPs")), "none")
    narrow = _is_narrow(spec.texts("loadBalancerSourceRanges"))
    if kind == "LoadBalancer" and not narrow and not _is_internal(resource):
        allowed = f"an annotation that makes it internal, or source ranges of /{BROADEST_PREFIX} or narrower"
        yield Violation(spec.at("type"), "LoadBalancer open to all", allowed)


def _is_internal(resource: Resource) -> bool:
    annotations = resource.props.block("metadata.annotations").data
    return any(str(annotations.get(name, "")).lower() == value for name, value in INTERNAL.items())


def _is_narrow(ranges: list[str]) -> bool:
    try:
        networks = [ip_network(item, strict=False) for item in ranges]
    except ValueError:
        return False  # not a network, so its size is unknown
    return bool(networks) and all(each.prefixlen >= BROADEST_PREFIX for each in networks)


POLICY = Policy(
    name="kubernetes-service-exposure",
    title="Services are not exposed broadly",
    reason=(
        "Training endpoints, dashboards and rendezvous stores trust their network; the internet must not "
        "reach them."
    ),
    remedy="Use ClusterIP with an authenticating gateway, or make the load balancer internal.",
    types=("kubernetes:core/v1:Service", "kubernetes:core/v1:ServicePatch"),
    evaluate=evaluate,
    frameworks=("NSA/CISA Kubernetes Hardening 1.2 Network separation", "NIST SP 800-53 SC-7"),
)
