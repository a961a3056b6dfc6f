"""The cluster's certificates: names, usages, authorities, permissions of files, and renewal."""

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from local.cluster import pki
from local.cluster.addresses import AddressPlan
from local.cluster.config import ClusterConfig, NodeConfig
from local.cluster.credentials import Credentials
from local.cluster.pki import Authority, CertificateSubject, KeyPair


def certificate(pair: KeyPair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate.read_bytes())


def hosts(pair: KeyPair) -> set[str]:
    names = certificate(pair).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = {str(address) for address in names.get_values_for_type(x509.IPAddress)}
    return addresses | set(names.get_values_for_type(x509.DNSName))


@pytest.fixture
def credentials(tmp_path: Path) -> Credentials:
    node = NodeConfig(name="spot-0", pool="spot")
    config = ClusterConfig(name="c", kubernetes_version="v1", nodes=(node,), data_dir="/data")
    return Credentials(tmp_path / "pki", AddressPlan.of(config, {"spot-0": 0}))


def test_keys_are_readable_by_their_owner_only(credentials: Credentials) -> None:
    credentials.api_server()
    credentials.client("system:kube-scheduler")
    credentials.service_account_key()
    files = [path for path in credentials.folder.iterdir() if path.suffix in {".key", ".kubeconfig"}]
    assert len(files) >= 6
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE(credentials.folder.stat().st_mode) == 0o700


def test_the_api_server_serves_under_its_address_and_its_names(credentials: Credentials) -> None:
    assert {"10.89.0.1", "10.96.0.1", "kubernetes.default.svc"} <= hosts(credentials.api_server())


def test_every_certificate_is_signed_by_its_authority(credentials: Credentials) -> None:
    certificate(credentials.kubelet_server("spot-0")).verify_directly_issued_by(
        certificate(credentials.authority.files)
    )
    with pytest.raises(ValueError, match="Issuer"):
        certificate(credentials.etcd_client()).verify_directly_issued_by(
            certificate(credentials.authority.files)
        )


def test_a_client_may_not_serve(credentials: Credentials) -> None:
    usages = certificate(credentials.admin()).extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    assert list(usages.value) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_a_kubelet_is_the_user_that_the_node_authorizer_expects(credentials: Credentials) -> None:
    kubeconfig = yaml.safe_load(credentials.client("system:node:spot-0", "system:nodes").read_text())
    user = kubeconfig["users"][0]["user"]
    subject = x509.load_pem_x509_certificate(Path(user["client-certificate"]).read_bytes()).subject
    assert subject.rfc4514_string() == "CN=system:node:spot-0,O=system:nodes"


def test_the_administrators_kubeconfig_has_embedded_certificates(credentials: Credentials) -> None:
    assert str(credentials.folder) not in credentials.admin_kubeconfig()


def test_issued_certificates_are_reused(tmp_path: Path) -> None:
    subject = CertificateSubject("etcd", hosts=("127.0.0.1",))
    first = certificate(Authority(tmp_path, "ca").issue("etcd", subject))
    assert certificate(Authority(tmp_path, "ca").issue("etcd", subject)) == first


@pytest.mark.parametrize(
    "changed",
    [CertificateSubject("etcd", hosts=("127.0.0.2",)), CertificateSubject("other", hosts=("127.0.0.1",))],
)
def test_another_subject_gets_another_certificate(tmp_path: Path, changed: CertificateSubject) -> None:
    authority = Authority(tmp_path, "ca")
    first = certificate(authority.issue("etcd", CertificateSubject("etcd", hosts=("127.0.0.1",))))
    assert certificate(authority.issue("etcd", changed)) != first


def test_a_certificate_lasts_a_year_and_is_renewed_before_its_last_month(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path, "ca")
    first = certificate(authority.issue("etcd", CertificateSubject("etcd")))
    left = first.not_valid_after_utc - datetime.now(UTC)
    assert timedelta(days=364) < left <= timedelta(days=365)
    monkeypatch.setattr(pki, "RENEW_BEFORE", timedelta(days=366))
    assert certificate(authority.issue("etcd", CertificateSubject("etcd"))) != first
