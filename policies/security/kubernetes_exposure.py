"""Policy: Kubernetes Services have no node ports or external IPs, and their load balancers are internal or
limited to source ranges; so are the ones of Ingresses.
"""

from collections.abc import Iterator

from policies.networks import BROADEST_PREFIX, is_narrow
from policies.policy import Policy, Resource, Violation
from policies.rules import must_avoid

INTERNAL = {
    "service.beta.kubernetes.io/aws-load-balancer-internal": "true",
    "service.beta.kubernetes.io/aws-load-balancer-scheme": "internal",
    "service.beta.kubernetes.io/azure-load-balancer-internal": "true",
    "networking.gke.io/load-balancer-type": "internal",
    "cloud.google.com/load-balancer-type": "internal",
}
"""Annotations that make a load balancer internal, with their values in lower case."""

ALB_SCHEME, ALB_SOURCES = "alb.ingress.kubernetes.io/scheme", "alb.ingress.kubernetes.io/inbound-cidrs"


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Load balancers are internal or take few sources; node ports and external addresses are not used."""
    if resource.type.endswith(":Gateway"):
        kind = resource.props.get("spec.gatewayClassName", "")
        if "-external" in kind:
            yield Violation("spec.gatewayClassName", kind, "an internal class, such as gke-l7-rilb")
        return
    if resource.type.endswith(":Ingress"):
        annotations = resource.props.block("metadata.annotations")
        scheme = annotations.entry(ALB_SCHEME)
        if scheme == "internet-facing" and not annotations.entry(ALB_SOURCES):
            yield Violation(f"{annotations.path}[{ALB_SCHEME}]", scheme, f"internal, or {ALB_SOURCES}")
        return
    if not resource.type.startswith("kubernetes:core/"):  # Ray and other operators make the Service
        yield from must_avoid(resource.props, {"serviceType": (("LoadBalancer", "NodePort"), "ClusterIP")})
        return
    spec = resource.props.block("spec")
    kind = spec.get("type", "ClusterIP")
    if kind == "NodePort":
        yield Violation(spec.at("type"), kind, "ClusterIP, or an internal LoadBalancer")
    if spec.texts("externalIPs"):
        yield Violation(spec.at("externalIPs"), ", ".join(spec.texts("externalIPs")), "none")
    ranges = spec.texts("loadBalancerSourceRanges")
    narrow = bool(ranges) and all(map(is_narrow, ranges))
    if kind == "LoadBalancer" and not narrow and not _is_internal(resource):
        allowed = (
            f"an annotation that makes it internal, or source ranges of /{BROADEST_PREFIX[4]} or narrower"
        )
        yield Violation(spec.at("type"), "LoadBalancer open to all", allowed)


def _is_internal(resource: Resource) -> bool:
    annotations = resource.props.block("metadata.annotations").data
    return any(str(annotations.get(name, "")).lower() == value for name, value in INTERNAL.items())


POLICY = Policy(
    name="kubernetes-service-exposure",
    title="Services are not exposed broadly",
    reason=(
        "Training endpoints, dashboards and rendezvous stores trust their network; the internet must not "
        "reach them."
    ),
    remedy="Use ClusterIP with an authenticating gateway, or make the load balancer internal.",
    types=(
        "kubernetes:core/v1:Service",
        "kubernetes:core/v1:ServicePatch",
        "kubernetes:*.*/*",
    ),
    evaluate=evaluate,
    frameworks=("NSA/CISA Kubernetes Hardening 1.2 Network separation", "NIST SP 800-53 SC-7"),
)
