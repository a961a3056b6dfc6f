"""Command lines and configuration of a node's daemons: containerd, kubelet, kube-proxy, network policies."""

import json

import yaml

from local.cluster import cgroups, containerd
from local.cluster.commands import program
from local.cluster.context import ClusterContext
from local.cluster.files import write
from local.cluster.kube_proxy import kube_proxy
from local.cluster.layout import gate
from local.cluster.machine import Daemon, InitSpec, Mount
from local.cluster.network import ROUTER_SYSCTLS
from local.cluster.network_policies import network_policies

LEASE_SECONDS = 8
"""Duration of a node's lease; kubelet renews it at a quarter, so a dead node is detected within 10 s."""
POD_PIDS = 4096
"""Maximum number of processes and threads of a pod; all nodes share the host's PIDs, often 32768."""
SHARED_FOLDERS = ("/var/lib/kubelet", "/var/lib/cni", "/var/log")
"""Paths that are fixed in kubelet and the CNI library; each node has a separate folder mounted there."""


class NodeMachine:
    """Command lines, mounts and configuration of one node's daemons."""

    def __init__(self, name: str, context: ClusterContext) -> None:
        self.name = name
        self.context = context
        self.folder = context.layout.node(name)

    @property
    def cgroup(self) -> str:
        """Below `/trainyard`: `<cluster>/<node>`."""
        return f"{self.context.layout.run.parent.name}/{self.name}"

    def spec(self, pause_image: str) -> InitSpec:
        """Write the config files and return the machine's daemons."""
        files = {
            "containerd.toml": containerd.node_config(self.folder, pause_image),
            "kubelet.yaml": yaml.safe_dump(self.kubelet_config()),
            "cni/10-pods.conflist": json.dumps(self.cni_config(), indent=1),
            # Pods with `dnsPolicy: Default` get no resolver: no traffic leaves the cluster.
            "resolv.conf": "",
        }
        for name, content in files.items():
            write(self.folder / name, content)
        return InitSpec(
            daemons=(
                network_policies(self.folder, self.name, self.context),
                self.containerd(),
                self.kubelet(),
                kube_proxy(self.folder, self.name, self.context),
            ),
            sysctls=ROUTER_SYSCTLS,
            mounts=(
                Mount("tmpfs", "", "/run"),
                *(Mount("bind", f"{self.folder}{target}", target) for target in SHARED_FOLDERS),
            ),
            folders=("/var/log/pods",),
        )

    def containerd(self) -> Daemon:
        argv = (program("containerd"), f"--config={self.folder / 'containerd.toml'}")
        return Daemon("containerd", argv, self._log("containerd"), {"GOGC": "200"})

    def kubelet(self) -> Daemon:
        kubeconfig = self.context.client(f"system:node:{self.name}", "system:nodes")
        argv = (
            self.context.binary("kubelet"),
            f"--config={self.folder / 'kubelet.yaml'}",
            f"--kubeconfig={kubeconfig}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.context.plan.nodes[self.name].address}",
            "--housekeeping-interval=30s",
        )
        return Daemon("kubelet", argv, self._log("kubelet"), {"GOGC": "200"}, str(gate(self.folder)))

    def kubelet_config(self) -> dict[str, object]:
        """KubeletConfiguration; absent fields have upstream's defaults."""
        server = self.context.credentials.kubelet_server(self.name)
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": str(self.context.plan.nodes[self.name].address),
            "registerNode": False,  # the cluster declares its nodes, with their GPUs, before they start
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self.context.credentials.authority.files.certificate)},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(server.certificate),
            "tlsPrivateKeyFile": str(server.key),
            "containerRuntimeEndpoint": f"unix://{containerd.SOCKET}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{cgroups.ROOT}/{self.cgroup}",
            "enforceNodeAllocatable": ["none"],  # all nodes share the host's memory
            "failCgroupV1": False,
            "podPidsLimit": POD_PIDS,
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "oomScoreAdj": 0,
            "clusterDNS": [str(self.context.plan.dns_service)],
            "clusterDomain": "cluster.local",
            "resolvConf": str(self.folder / "resolv.conf"),
            # Images are imported from archives, so a collected image cannot be pulled again.
            "imageGCHighThresholdPercent": 100,
            # Absolute: a percentage of a workstation's disk mostly depends on other files.
            "evictionHard": {
                "memory.available": "200Mi",
                "nodefs.available": "1Gi",
                "imagefs.available": "1Gi",
            },
            # How soon a controller sees its certificate in a mounted Secret: 1 min by default.
            "syncFrequency": "5s",
            "nodeLeaseDurationSeconds": LEASE_SECONDS,
            "volumeStatsAggPeriod": "10m",
        }

    def cni_config(self) -> dict[str, object]:
        """Return the CNI config: each pod has a link to the node, which routes, so no Service is missed."""
        ranges = [[{"subnet": str(self.context.plan.nodes[self.name].pod_subnet)}]]
        ipam = {
            "type": "host-local",
            "dataDir": "/run/cni",  # leases must not outlive the namespaces that hold them
            "ranges": ranges,
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        return {"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "ptp", "ipam": ipam}]}

    def _log(self, name: str) -> str:
        return str(self.folder / f"{name}.log")
