"""Configuration and command line of kube-proxy."""

from pathlib import Path

import yaml

from local.cluster.context import ClusterContext
from local.cluster.files import write
from local.cluster.layout import gate
from local.cluster.machine import Daemon


def kube_proxy(folder: Path, node: str, context: ClusterContext) -> Daemon:
    """Write its config below `folder` and return the daemon.

    `node` must be a Node that exists: kube-proxy waits half a minute for one that does not.
    """
    config = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": str(context.plan.pod_network),
        "hostnameOverride": node,
        "bindAddress": "0.0.0.0",  # noqa: S104, NodePorts, inside a namespace of ours
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "clientConnection": {"kubeconfig": context.client("system:kube-proxy")},
        # Webhooks are called as soon as their pods serve; the default of 1 s is for large clusters.
        "nftables": {"minSyncPeriod": "200ms", "syncPeriod": "5m"},
        # Limits of connection tracking are the host's, not ours to set.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpCloseWaitTimeout": "0s", "tcpEstablishedTimeout": "0s"},
    }
    path = folder / "kube-proxy.yaml"
    write(path, yaml.safe_dump(config))
    argv = (context.binary("kube-proxy"), f"--config={path}")
    return Daemon("kube-proxy", argv, str(folder / "kube-proxy.log"), {"GOGC": "200"}, str(gate(folder)))
