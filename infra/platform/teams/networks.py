"""One NetworkPolicy per team: allows traffic inside the team, DNS, and the destinations that the stack and
the target name.

A policy takes addresses, not names, and is applied after a Service's address has become a pod's. The cluster
must enforce it: each target's guide describes how.
"""

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network
from typing import Any

import pulumi

from infra.common import names
from infra.common.charts import Manifest
from infra.platform.base import Layer, PlatformContext, metadata
from infra.platform.namespaces import Namespaces
from infra.stackfile.network import EgressSpec
from infra.stackfile.queue import TeamSpec
from infra.targets.base import LINK_LOCAL, PRIVATE

POLICY = "team"
_DNS_PORT = 53
_NAMESPACE_LABEL = "kubernetes.io/metadata.name"
Rule = Mapping[str, Any]


class Networks(Layer):
    """One NetworkPolicy per team."""

    def __init__(self, context: PlatformContext, namespaces: Namespaces, parent: pulumi.Resource) -> None:
        spec = context.stack.network
        super().__init__(context, "networks", {"spec": spec.model_dump(mode="json")}, parent)
        for team in context.stack.teams:
            namespace = names.team_namespace(team.name)
            self.add(policy(team, context), [namespaces.by_name[namespace]])
        self.register_outputs({})


def policy(team: TeamSpec, context: PlatformContext) -> Manifest:
    """Return the NetworkPolicy of a team: both directions denied, except for the listed peers.

    Not listed and so denied: other teams, the API server, kubelets, the metadata service, the operators'
    webhooks and metrics. No policy prevents a node from reaching its pods for probes, logs and exec.
    """
    own: Rule = {"podSelector": {}}
    named = [each for each in context.stack.network.egress if not each.teams or team.name in each.teams]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(POLICY, names.team_namespace(team.name)),
        "spec": {
            "podSelector": {},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [own]}],
            "egress": [{"to": [own]}, _dns(context), *_given(context), *map(_named, named)],
        },
    }


def _dns(context: PlatformContext) -> Rule:
    """The pods that answer are of kube-system; some targets answer from addresses that are no pods'."""
    ports = [{"protocol": protocol, "port": _DNS_PORT} for protocol in ("UDP", "TCP")]
    return {
        "to": [_pods_of("kube-system"), *(_addresses(each) for each in context.settings.dns)],
        "ports": ports,
    }


def _given(context: PlatformContext) -> list[Rule]:
    """Return the rules that every team needs of the target: to the object store and the identity service."""
    rules: list[Rule] = [
        {"to": [_addresses(each.cidr)], "ports": _tcp(each.ports)} for each in context.settings.destinations
    ]
    if not context.settings.serves_object_store:
        return rules
    store = _pods_of(names.STORAGE_NAMESPACE, {"app.kubernetes.io/name": names.OBJECT_STORE})
    return [{"to": [store], "ports": _tcp([names.OBJECT_STORE_PORT])}, *rules]


def _named(egress: EgressSpec) -> Rule:
    peer = _pods_of(egress.namespace) if egress.namespace else _addresses(str(egress.cidr))
    return {"to": [peer], "ports": _tcp(egress.ports)}


def _pods_of(namespace: str, labels: Mapping[str, str] | None = None) -> Rule:
    pods = {"podSelector": {"matchLabels": dict(labels)}} if labels else {}
    return {"namespaceSelector": {"matchLabels": {_NAMESPACE_LABEL: namespace}}, **pods}


def _addresses(cidr: str) -> Rule:
    network = IPv4Network(cidr)
    # A larger network that contains these means the internet without them.
    closed = map(IPv4Network, (*PRIVATE, LINK_LOCAL))
    inside = [each for each in closed if each != network and each.subnet_of(network)]
    but = {"except": [str(each) for each in inside]} if inside else {}
    return {"ipBlock": {"cidr": cidr, **but}}


def _tcp(ports: Sequence[int]) -> list[Rule]:
    return [{"protocol": "TCP", "port": port} for port in ports]
