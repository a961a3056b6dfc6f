"""Creates the cluster's certificate authorities and signing keys, and issues certificates.

Authorities and signing keys are created once and read afterwards. A certificate is issued again if its
subject has changed or it expires within 30 days.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from local.cluster.files import write

AUTHORITY_LIFETIME = timedelta(days=3650)
LIFETIME = timedelta(days=365)
"""Lifetime of a certificate, as with kubeadm: one year; authorities have ten."""
RENEW_BEFORE = timedelta(days=30)


@dataclass(frozen=True)
class CertificateSubject:
    """Subject and host names of a certificate."""

    name: str
    """Common name, which is the user name in Kubernetes."""
    groups: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    """DNS names and IP addresses; a certificate with any is valid for servers too."""


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path

    @property
    def exists(self) -> bool:
        return self.certificate.exists() and self.key.exists()


class Authority:
    """Signs certificates; stored in `<folder>/<name>.crt` and `.key`."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.files = KeyPair(folder / f"{name}.crt", folder / f"{name}.key")
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self.files.exists:
            _write_authority(self.files, name)
        self._key = _load_key(self.files.key)
        self._certificate = x509.load_pem_x509_certificate(self.files.certificate.read_bytes())

    def issue(self, file_name: str, subject: CertificateSubject) -> KeyPair:
        """Return `<folder>/<file_name>.crt` and `.key`, made or renewed where needed."""
        pair = KeyPair(self.folder / f"{file_name}.crt", self.folder / f"{file_name}.key")
        if not (pair.exists and self._holds(pair.certificate, subject)):
            key = ec.generate_private_key(ec.SECP256R1())
            certificate = self._sign(subject, key.public_key())
            write(pair.key, _key_pem(key))
            write(pair.certificate, certificate.public_bytes(serialization.Encoding.PEM))
        return pair

    def _holds(self, path: Path, subject: CertificateSubject) -> bool:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        return (
            certificate.issuer == self._certificate.subject
            and certificate.subject == _name(subject)
            and _hosts(certificate) == set(subject.hosts)
            and certificate.not_valid_after_utc - datetime.now(UTC) > RENEW_BEFORE
        )

    def _sign(self, subject: CertificateSubject, public_key: ec.EllipticCurvePublicKey) -> x509.Certificate:
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = _builder(_name(subject), self._certificate.subject, public_key, LIFETIME)
        if subject.hosts:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
            names = x509.SubjectAlternativeName([_general_name(host) for host in subject.hosts])
            builder = builder.add_extension(names, critical=False)
        return (
            builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )


def signing_key(folder: Path, name: str) -> KeyPair:
    """Return a bare key pair (`.pub`, `.key`), such as the one that signs service account tokens."""
    pair = KeyPair(folder / f"{name}.pub", folder / f"{name}.key")
    if not pair.exists:
        key = ec.generate_private_key(ec.SECP256R1())
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        write(pair.key, _key_pem(key))
        write(pair.certificate, public)
    return pair


def _write_authority(files: KeyPair, name: str) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(CertificateSubject(f"trainyard-{name}"))
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        _builder(subject, subject, key.public_key(), AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    write(files.key, _key_pem(key))
    write(files.certificate, certificate.public_bytes(serialization.Encoding.PEM))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, lifetime: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + lifetime)
    )


def _name(subject: CertificateSubject) -> x509.Name:
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in subject.groups]
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, subject.name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _hosts(certificate: x509.Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    addresses = names.get_values_for_type(x509.IPAddress)
    return {*names.get_values_for_type(x509.DNSName), *(str(address) for address in addresses)}


def _load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"{path} holds no elliptic curve key")
    return key


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
