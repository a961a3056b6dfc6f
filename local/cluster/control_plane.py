"""Command lines and configuration of the control plane: etcd, Kubernetes' servers, CoreDNS, kube-proxy.

The control plane runs kube-proxy because the API server calls webhooks through their Services.
"""

from pathlib import Path

from local.cluster import audit
from local.cluster.addresses import API_PORT
from local.cluster.commands import program
from local.cluster.context import ClusterContext
from local.cluster.files import write
from local.cluster.kube_proxy import kube_proxy
from local.cluster.layout import gate
from local.cluster.machine import Daemon, InitSpec, Mount
from local.cluster.network import ROUTER_SYSCTLS

ETCD = "https://127.0.0.1:2379"
ETCD_PEER = "http://127.0.0.1:2380"
"""Peer URL that etcd requires; nothing connects to it, since the cluster has one member."""
DNS_USER = "system:coredns"
NODE_GRACE_SECONDS = 10
"""Seconds from a node's last lease renewal to NotReady; upstream waits 40 s, clouds detect a stopped
instance sooner."""
_UNUSED_CONTROLLERS = (
    "bootstrap-signer-controller",
    "token-cleaner-controller",
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
    "certificatesigningrequest-signing-controller",
    "horizontal-pod-autoscaler-controller",
    "node-ipam-controller",
    "node-route-controller",
)
COREFILE = """cluster.local in-addr.arpa {{
    bind {address}
    errors
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {kubeconfig}
        ttl 5
    }}
}}
. {{
    bind {address}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""
"""Configuration of CoreDNS. Names outside the cluster are refused at once, since there is no route out.
Nothing is cached, as in kubeadm's Corefile for cluster.local: a cached miss would hide a new pod for 5 s,
and a cached hit would return a restarted pod's old address."""


class EmbeddedControlPlane:
    """Composes the control machine."""

    def __init__(self, context: ClusterContext) -> None:
        self.context = context

    def spec(self, any_node: str) -> InitSpec:
        """Write the config files and return the machine's daemons; `any_node` is the name of a node."""
        self.context.layout.audit.mkdir(parents=True, exist_ok=True, mode=0o700)
        write(self._audit_policy, audit.POLICY.read_text(encoding="utf-8"))
        daemons = (
            self.etcd(),
            self.api_server(),
            self.controller_manager(),
            self.scheduler(),
            self.core_dns(),
            kube_proxy(self.context.layout.control, any_node, self.context),
        )
        return InitSpec(daemons=daemons, sysctls=ROUTER_SYSCTLS, mounts=(Mount("tmpfs", "", "/run"),))

    def etcd(self) -> Daemon:
        server, authority = (
            self.context.credentials.etcd_server(),
            self.context.credentials.etcd_authority.files,
        )
        argv = (
            program("etcd"),
            "--name=trainyard",
            f"--data-dir={self.context.layout.control / 'etcd'}",
            f"--listen-client-urls={ETCD}",
            f"--advertise-client-urls={ETCD}",
            f"--listen-peer-urls={ETCD_PEER}",
            f"--initial-advertise-peer-urls={ETCD_PEER}",
            f"--initial-cluster=trainyard={ETCD_PEER}",
            f"--cert-file={server.certificate}",
            f"--key-file={server.key}",
            "--client-cert-auth=true",
            f"--trusted-ca-file={authority.certificate}",
            # A single member has no competitor in elections: fewer heartbeats cost nothing.
            "--heartbeat-interval=500",
            "--election-timeout=2500",
            "--log-level=warn",
        )
        return self._daemon("etcd", argv)

    def api_server(self) -> Daemon:
        credentials = self.context.credentials
        server, etcd = credentials.api_server(), credentials.etcd_client()
        kubelet, proxy = credentials.kubelet_client(), credentials.proxy_client()
        tokens = credentials.service_account_key()
        argv = (
            self.context.binary("kube-apiserver"),
            f"--bind-address={self.context.plan.control}",
            f"--advertise-address={self.context.plan.control}",
            f"--secure-port={API_PORT}",
            # etcd 3.4 (Debian's) has no progress notifications, so WatchList is disabled: a watch without a
            # version, as MultiKueue's, would end at once. List-then-watch clients are unaffected.
            "--feature-gates=WatchList=false",
            f"--service-cluster-ip-range={self.context.plan.service_network}",
            f"--etcd-servers={ETCD}",
            f"--etcd-cafile={credentials.etcd_authority.files.certificate}",
            f"--etcd-certfile={etcd.certificate}",
            f"--etcd-keyfile={etcd.key}",
            f"--client-ca-file={credentials.authority.files.certificate}",
            f"--tls-cert-file={server.certificate}",
            f"--tls-private-key-file={server.key}",
            f"--kubelet-certificate-authority={credentials.authority.files.certificate}",
            f"--kubelet-client-certificate={kubelet.certificate}",
            f"--kubelet-client-key={kubelet.key}",
            "--kubelet-preferred-address-types=InternalIP",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={tokens.certificate}",
            f"--service-account-signing-key-file={tokens.key}",
            f"--requestheader-client-ca-file={credentials.proxy_authority.files.certificate}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={proxy.certificate}",
            f"--proxy-client-key-file={proxy.key}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--anonymous-auth=false",
            "--allow-privileged=true",
            "--profiling=false",
            *audit.flags(self.context.layout.audit, self._audit_policy),
        )
        return self._daemon("kube-apiserver", argv)

    @property
    def _audit_policy(self) -> Path:
        return self.context.layout.control / "audit-policy.yaml"

    def controller_manager(self) -> Daemon:
        kubeconfig = self.context.client("system:kube-controller-manager")
        off = ",".join(f"-{name}" for name in _UNUSED_CONTROLLERS)
        argv = (
            self.context.binary("kube-controller-manager"),
            *self._server_flags(kubeconfig),
            f"--controllers=*,{off}",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={self.context.credentials.service_account_key().key}",
            f"--root-ca-file={self.context.credentials.authority.files.certificate}",
            f"--node-monitor-grace-period={NODE_GRACE_SECONDS}s",
            "--node-monitor-period=2s",
            # A claim that is created before its volume is seen waits for the next sync: 15 s by default.
            "--pvclaimbinder-sync-period=2s",
            "--kube-api-qps=100",
            "--kube-api-burst=200",
        )
        return self._daemon("kube-controller-manager", argv, needs_api=True)

    def scheduler(self) -> Daemon:
        kubeconfig = self.context.client("system:kube-scheduler")
        argv = (self.context.binary("kube-scheduler"), *self._server_flags(kubeconfig))
        return self._daemon("kube-scheduler", argv, needs_api=True)

    def core_dns(self) -> Daemon:
        kubeconfig = self.context.client(DNS_USER)
        corefile = self.context.layout.control / "Corefile"
        write(corefile, COREFILE.format(address=self.context.plan.control, kubeconfig=kubeconfig))
        argv = (self.context.binary("coredns"), "-conf", str(corefile))
        return self._daemon("coredns", argv, needs_api=True)

    def _server_flags(self, kubeconfig: str) -> tuple[str, ...]:
        return (
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
            "--profiling=false",
        )

    def _daemon(self, name: str, argv: tuple[str, ...], *, needs_api: bool = False) -> Daemon:
        log = str(self.context.layout.control / f"{name}.log")
        waits_for = str(gate(self.context.layout.control)) if needs_api else ""
        return Daemon(name, argv, log, {"GOGC": "200"}, waits_for)
