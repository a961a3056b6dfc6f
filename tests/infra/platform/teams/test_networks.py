"""NetworkPolicies of team namespaces: pods may connect only to what a policy names."""

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

from infra.stackfile import Stack
from infra.stackfile.network import EgressSpec, NetworkSpec
from tests.infra.plan import Plan, plan

TRACKER = EgressSpec(name="tracker", cidr=IPv4Network("203.0.113.7/32"), ports=(443,), teams=("research",))
INSIDE = EgressSpec(name="mlflow", namespace="mlflow", ports=(5000,))
INTERNET = EgressSpec(name="models", cidr=IPv4Network("0.0.0.0/0"), ports=(443,))


def policies(found: Plan) -> dict[str, Mapping[str, Any]]:
    """Return namespace of a team → the spec of its policy."""
    made = found.named("NetworkPolicy").values()
    spaces = {each["metadata"]["namespace"]: each["spec"] for each in made}
    return {space: spec for space, spec in spaces.items() if space.startswith("team-")}


def reaches(spec: Mapping[str, Any], address: str, port: int) -> bool:
    """Whether the policy permits connections to an address outside of the cluster."""
    to = IPv4Address(address)
    return any(
        to in IPv4Network(block["cidr"])
        and not any(to in IPv4Network(each) for each in block.get("except", []))
        for rule in spec["egress"]
        if port in [each["port"] for each in rule.get("ports", [])]
        for block in [peer["ipBlock"] for peer in rule["to"] if "ipBlock" in peer]
    )


def test_declared_egress_is_open_only_to_the_teams_that_it_names(local: Stack, rendered: Path) -> None:
    network = NetworkSpec(egress=(TRACKER, INSIDE))
    found = policies(plan(local.model_copy(update={"network": network}), rendered))
    assert reaches(found["team-research"], "203.0.113.7", 443)
    assert not reaches(found["team-research"], "203.0.113.7", 80)
    assert not reaches(found["team-platform"], "203.0.113.7", 443)
    of_pods = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "mlflow"}}}
    for spec in found.values():
        assert {"to": [of_pods], "ports": [{"protocol": "TCP", "port": 5000}]} in spec["egress"]


def test_egress_to_the_internet_excludes_private_networks(local: Stack, rendered: Path) -> None:
    network = NetworkSpec(egress=(INTERNET,))
    spec = policies(plan(local.model_copy(update={"network": network}), rendered))["team-research"]
    assert reaches(spec, "203.0.113.7", 443)
    for inside in ("10.89.0.1", "169.254.169.254", "172.16.0.1", "192.168.0.1", "100.64.0.1"):
        assert not reaches(spec, inside, 443)
