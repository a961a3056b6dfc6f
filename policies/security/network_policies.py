"""Policy: the cluster enforces NetworkPolicies, and no NetworkPolicy admits traffic from anywhere."""

from collections.abc import Iterator

import yaml

from policies.networks import is_public
from policies.policy import Policy, Resource, Violation


def evaluate(resource: Resource) -> Iterator[Violation]:
    """The cluster enforces policies; a policy that takes all traffic is none."""
    props = resource.props
    if resource.type == "aws:eks/addon:Addon":
        values = yaml.safe_load(props.get("configurationValues", "{}")) or {}
        on = str(values.get("enableNetworkPolicy", "")).lower() == "true"
        if props.get("addonName") == "vpc-cni" and not on:
            yield Violation("configurationValues.enableNetworkPolicy", "off", "true")
    elif resource.type == "gcp:container/cluster:Cluster":
        advanced = props.get("datapathProvider") == "ADVANCED_DATAPATH"
        if not (advanced or props.get("enableAutopilot") or props.get("networkPolicy.enabled")):
            yield Violation("datapathProvider", props.get("datapathProvider", "nothing"), "ADVANCED_DATAPATH")
    elif resource.type.startswith("azure-native:"):
        dataplane = props.get("networkProfile.networkDataplane")
        if dataplane != "cilium" and props.get("networkProfile.networkPolicy", "none") == "none":
            yield Violation("networkProfile.networkPolicy", "none", "cilium, azure or calico")
    else:
        for rule in props.block("spec").blocks("ingress"):
            blocks = [source.get("ipBlock.cidr", "") for source in rule.blocks("from")]
            if not blocks or any(map(is_public, blocks)):
                got = next(filter(is_public, blocks), "everybody")
                yield Violation(rule.at("from"), got, "named pods, namespaces or networks")


POLICY = Policy(
    name="security-network-policies",
    title="Network policies are enforced and restrict traffic",
    reason="Without enforcement every pod silently reaches every other team's rendezvous store.",
    remedy="Turn enforcement on, and name who may connect.",
    types=(
        "aws:eks/addon:Addon",
        "gcp:container/cluster:Cluster",
        "azure-native:containerservice:ManagedCluster",
        "kubernetes:networking.k8s.io/*:NetworkPolicy",
    ),
    evaluate=evaluate,
    frameworks=("CIS Kubernetes 5.3.2", "CIS EKS 4.3.1", "CIS GKE 5.6.7", "NIST SP 800-53 SC-7"),
)
