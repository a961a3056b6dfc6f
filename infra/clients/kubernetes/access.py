"""How the current context of a kubeconfig reaches its cluster: address, TLS, proxy, and the user's
credential, which an exec plugin renews.
"""

import base64
import ipaddress
import json
import os
import ssl
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies

Entry = dict[str, Any]
REACHED = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url", "disable-compression")
"""Keys of a cluster that say how clients reach it, besides its CA certificates."""
_PLUGIN_EXTENSION = "client.authentication.k8s.io/exec"
"""Extension of a cluster with settings of exec plugins, which they receive as `spec.cluster.config`."""
_IMPERSONATED = {"as": "Impersonate-User", "as-uid": "Impersonate-Uid", "as-groups": "Impersonate-Group"}


class PluginError(Exception):
    """An exec plugin gave no credential. The message has no arguments and no output, which may be secret."""


@dataclass(frozen=True)
class _Credential:
    token: str = ""
    certificate: bytes = b""
    """PEM, with `key`; empty: the user has none."""
    key: bytes = b""
    expires: datetime | None = None

    @property
    def is_over(self) -> bool:
        return self.expires is not None and datetime.now(UTC) >= self.expires


class ClusterAccess:
    """One user's access to one cluster, for all threads."""

    def __init__(
        self, kubeconfig: Mapping[str, Any], keys: Path | None = None, *, proxied: bool = True
    ) -> None:
        """Read the kubeconfig's current context.

        Args:
            kubeconfig: a kubeconfig's content.
            keys: private folder for the moment in which a key must be a file; None: the system's.
            proxied: whether the environment's proxy may be used; not for an address of this host.

        Raises:
            ValueError: the kubeconfig has no such context, cluster or user.
            PluginError: the user's exec plugin gives no credential.
        """
        context, self._cluster = current(kubeconfig)
        self._user = _named(kubeconfig, "users", "user", context["user"]) if context.get("user") else {}
        self.address = str(self._cluster["server"]).rstrip("/")
        self.server_name = str(self._cluster.get("tls-server-name") or urlsplit(self.address).hostname)
        self.proxy = str(self._cluster.get("proxy-url") or (proxy_for(self.address) if proxied else ""))
        self._keys, self._lock = keys, Lock()
        self._credential = self._sign_in()
        self._tls = self._context()

    @property
    def proxy_user(self) -> tuple[str, ...]:
        """Name and password that the proxy's address has; empty without them."""
        parts = urlsplit(self.proxy)
        return (unquote(parts.username), unquote(parts.password or "")) if parts.username else ()

    def now(self) -> tuple[ssl.SSLContext, list[tuple[str, str]]]:
        """Return TLS and headers for a request, with a new credential where the last one has expired."""
        with self._lock:
            if self._credential.is_over:
                before = self._credential
                with suppress(PluginError):  # the API server then refuses the last one
                    self._credential = self._sign_in()
                if before.certificate != self._credential.certificate:
                    self._tls = self._context()
            return self._tls, self._headers()

    def _sign_in(self) -> _Credential:
        user = self._user
        given: Entry = {}
        if "exec" in user and not (user.get("token") or user.get("tokenFile")):
            given = ask_plugin(user["exec"], self._cluster)
        certificate = str(given.get("clientCertificateData") or "").encode()
        key = str(given.get("clientKeyData") or "").encode()
        expires = given.get("expirationTimestamp")
        found = _Credential(
            str(given.get("token") or user.get("token") or ""),
            certificate or content_of(user, "client-certificate") or b"",
            key or content_of(user, "client-key") or b"",
            datetime.fromisoformat(expires) if expires else None,
        )
        if given and not (found.token or found.certificate):
            raise PluginError(f"no credentials from `{user['exec']['command']}`")
        return found

    def _headers(self) -> list[tuple[str, str]]:
        token = self._credential.token
        if file := self._user.get("tokenFile"):  # read each time: the kubelet replaces a pod's own
            token = Path(file).read_text().strip()
        headers = [("Authorization", f"Bearer {token}")] if token else []
        for field, header in _IMPERSONATED.items():
            values = self._user.get(field) or ()
            headers += [(header, each) for each in ([values] if isinstance(values, str) else values)]
        return headers

    def _context(self) -> ssl.SSLContext:
        authority = content_of(self._cluster, "certificate-authority")
        tls = ssl.create_default_context(cadata=authority.decode() if authority else None)
        # Python 3.13 refuses CA certificates without a key identifier, as clouds issue them.
        tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self._cluster.get("insecure-skip-tls-verify"):
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        if self._credential.certificate:
            with tempfile.TemporaryDirectory(dir=self._keys) as folder:  # OpenSSL reads them from files only
                (chain := Path(folder, "chain")).write_bytes(self._credential.certificate)
                (key := Path(folder, "key")).write_bytes(self._credential.key)
                tls.load_cert_chain(chain, key)
        return tls


def ask_plugin(
    plugin: Mapping[str, Any], cluster: Mapping[str, Any], environ: Mapping[str, str] = os.environ
) -> Entry:
    """Run an exec plugin, as Kubernetes' clients do, and return the `status` of its answer.

    Raises PluginError where there is none.
    """
    words = [plugin.get("command") or "no command", *(plugin.get("args") or ())]
    about: Entry = {"interactive": False}
    asked = {"apiVersion": plugin.get("apiVersion"), "kind": "ExecCredential", "spec": about}
    try:
        if plugin.get("provideClusterInfo"):
            about["cluster"] = {**reached(cluster), **_plugin_config(cluster)}
        given = {each["name"]: each["value"] for each in plugin.get("env") or ()}
        variables = {**environ, **given, "KUBERNETES_EXEC_INFO": json.dumps(asked)}
        ended = subprocess.run(words, env=variables, stdout=subprocess.PIPE, text=True, check=True)
        status: Entry = json.loads(ended.stdout)["status"]
    except FileNotFoundError:
        raise PluginError(f"{words[0]}: not installed") from None
    except (OSError, subprocess.CalledProcessError, ValueError, KeyError, TypeError) as error:
        raise PluginError(f"no credentials from `{words[0]}` ({type(error).__name__})") from None
    return status


def reached(cluster: Mapping[str, Any]) -> Entry:
    """Return how clients reach a cluster, without references to files, as a plugin receives it too."""
    return {**{key: cluster[key] for key in REACHED if key in cluster}, **authority(cluster)}


def authority(cluster: Mapping[str, Any]) -> Entry:
    """Return the cluster's CA certificates as data, which clients pass on to plugins; a file they do not."""
    found = content_of(cluster, "certificate-authority")
    return {"certificate-authority-data": base64.b64encode(found).decode()} if found else {}


def content_of(held: Mapping[str, Any], key: str) -> bytes | None:
    """Return what an entry holds itself, or in a file; None for neither. Raises OSError for no file."""
    if data := held.get(f"{key}-data"):
        return base64.b64decode(data)
    return Path(held[key]).read_bytes() if held.get(key) else None


def proxy_for(address: str) -> str:
    """Return the environment's proxy for an address; empty: none. NO_PROXY may name networks, as in Go."""
    parts, known = urlsplit(address), getproxies()
    host = parts.hostname or ""
    for each in filter(None, (name.strip() for name in known.get("no", "").split(","))):
        if each == "*" or host == each.lstrip(".") or host.endswith(f".{each.lstrip('.')}"):
            return ""
        try:
            if ipaddress.ip_address(host) in ipaddress.ip_network(each, strict=False):
                return ""
        except ValueError:  # one of them is a name
            continue
    return known.get(parts.scheme) or known.get("all", "")


def current(kubeconfig: Mapping[str, Any]) -> tuple[Entry, Entry]:
    """Return the current context and its cluster. Raises ValueError where the kubeconfig lacks one."""
    context = _named(kubeconfig, "contexts", "context", kubeconfig.get("current-context", ""))
    return context, _named(kubeconfig, "clusters", "cluster", context.get("cluster", ""))


def _named(kubeconfig: Mapping[str, Any], section: str, part: str, name: str) -> Entry:
    for each in kubeconfig.get(section) or ():
        if each["name"] == name:
            return dict(each.get(part) or {})
    raise ValueError(f"the kubeconfig has no {part} {name!r}")


def _plugin_config(cluster: Mapping[str, Any]) -> Entry:
    """Return the settings of exec plugins that a cluster has."""
    extensions = cluster.get("extensions") or ()
    found = [each["extension"] for each in extensions if each["name"] == _PLUGIN_EXTENSION]
    return {"config": found[0]} if found else {}
