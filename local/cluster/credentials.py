"""Issues the certificates and kubeconfigs of an embedded cluster's components, nodes and administrator."""

import base64
from pathlib import Path

import yaml

from local.cluster.addresses import AddressPlan
from local.cluster.files import write
from local.cluster.pki import Authority, CertificateSubject, KeyPair, signing_key

ADMIN = "trainyard-admin"


class Credentials:
    """Certificates and kubeconfigs of a cluster, made on first use."""

    def __init__(self, folder: Path, plan: AddressPlan) -> None:
        self.folder = folder
        self.plan = plan
        self.authority = Authority(folder, "ca")
        self.etcd_authority = Authority(folder, "etcd-ca")
        self.proxy_authority = Authority(folder, "front-proxy-ca")

    @property
    def ca_pem(self) -> str:
        return self.authority.files.certificate.read_text()

    def service_account_key(self) -> KeyPair:
        """Signs and proves service account tokens."""
        return signing_key(self.folder, "service-account")

    def api_server(self) -> KeyPair:
        """Serves the API under its address and under its names inside the cluster."""
        service = "kubernetes.default.svc.cluster.local"
        parts = service.split(".")
        names = [".".join(parts[:n]) for n in (1, 2, 3, 5)]
        hosts = (*names, "localhost", str(self.plan.control), str(self.plan.kubernetes_service), "127.0.0.1")
        return self.authority.issue("apiserver", CertificateSubject("kube-apiserver", hosts=hosts))

    def kubelet_client(self) -> KeyPair:
        """The API server towards kubelets, for logs and exec."""
        return self.authority.issue(
            "kubelet-client", CertificateSubject("kube-apiserver", ("system:masters",))
        )

    def proxy_client(self) -> KeyPair:
        """The API server towards aggregated APIs."""
        return self.proxy_authority.issue("front-proxy-client", CertificateSubject("front-proxy-client"))

    def etcd_server(self) -> KeyPair:
        return self.etcd_authority.issue("etcd", CertificateSubject("etcd", hosts=("localhost", "127.0.0.1")))

    def etcd_client(self) -> KeyPair:
        return self.etcd_authority.issue("etcd-client", CertificateSubject("kube-apiserver"))

    def kubelet_server(self, node: str) -> KeyPair:
        """A kubelet's own server: exec, logs, metrics."""
        hosts = (node, str(self.plan.nodes[node].address))
        return self.authority.issue(
            f"kubelet-{node}", CertificateSubject(f"system:node:{node}", ("system:nodes",), hosts)
        )

    def client(self, user: str, *groups: str) -> Path:
        """Return a kubeconfig for this user.

        It names the files, which clients read again when a certificate is renewed.
        """
        file_name = user.replace(":", "-")
        pair = self.authority.issue(file_name, CertificateSubject(user, groups))
        identity = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
        authority = {"certificate-authority": str(self.authority.files.certificate)}
        path = self.folder / f"{file_name}.kubeconfig"
        write(path, self._kubeconfig(user, identity, authority))
        return path

    def admin(self) -> KeyPair:
        """The administrator of the cluster, for this package and all who can read the kubeconfig."""
        return self.authority.issue("admin", CertificateSubject(ADMIN, ("system:masters",)))

    def admin_kubeconfig(self) -> str:
        """A kubeconfig that holds all it needs, so that it can be taken elsewhere."""
        pair = self.admin()
        identity = {
            "client-certificate-data": _base64(pair.certificate),
            "client-key-data": _base64(pair.key),
        }
        authority = {"certificate-authority-data": _base64(self.authority.files.certificate)}
        return self._kubeconfig(ADMIN, identity, authority)

    def _kubeconfig(self, user: str, identity: dict[str, str], authority: dict[str, str]) -> str:
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "trainyard", "cluster": {"server": self.plan.endpoint, **authority}}],
            "users": [{"name": user, "user": identity}],
            "contexts": [{"name": "trainyard", "context": {"cluster": "trainyard", "user": user}}],
            "current-context": "trainyard",
        }
        return yaml.safe_dump(content, sort_keys=False)


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
