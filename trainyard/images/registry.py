"""Client of OCI registries: checks that images exist, looks up digests of images and charts, and reads image
layers.
"""

import hashlib
import io
import json
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import urllib3

from infra.errors import InputError, Problem
from trainyard.images.contents import UnreadableImageError, chosen

_TYPES = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_CHART = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
"""Layer of an OCI artifact that is a chart's archive, bit for bit (Helm: OCI support)."""
_DOCKER_HUB = "docker.io"
_HUB_INDEX = "index.docker.io"
"""Docker Hub's other name: `docker login` stores its login as `https://index.docker.io/v1/`."""
_HOSTS = {_DOCKER_HUB: "registry-1.docker.io"}
_LOOPBACK = ("localhost", "127.0.0.1")
_TIMEOUT_SECONDS = 15.0
_CHUNK_BYTES = 1 << 20
_TOO_MANY = 429
_REASONS = {
    401: "login required",
    403: "no access with this login",
    404: "missing",
    _TOO_MANY: "too many requests: retry later",
}
"""Meaning of a status other than 200 for a manifest."""
RETRIES = urllib3.Retry(None, connect=1, read=1, redirect=3, other=1, respect_retry_after_header=False)
"""A failed request is repeated once; `total` would count redirects too."""
_TRIES, _MAX_WAIT_SECONDS = 4, 20.0
"""Limits of retries at a registry that asks to wait; Docker Hub's limits last an hour, which is too long."""


def parse_reference(reference: str) -> tuple[str, str, str]:
    """Split an image reference into host, name, and tag or digest; a name without a host is Docker Hub's."""
    path, separator, digest = reference.partition("@")
    name, colon, tag = path.rpartition(":")
    if not colon or "/" in tag:
        name, tag = path, "latest"
    host, slash, rest = name.partition("/")
    if not slash or ("." not in host and ":" not in host and host != "localhost"):
        host, rest = _DOCKER_HUB, name
    host = _DOCKER_HUB if host == _HUB_INDEX else host
    if host == _DOCKER_HUB and "/" not in rest:
        rest = f"library/{rest}"
    return host, rest, digest if separator else tag


def _login_host(key: str) -> str:
    """Return the host of a key of Docker's `auths`, which may be a URL."""
    host = key.rpartition("://")[2].partition("/")[0]
    return _DOCKER_HUB if host == _HUB_INDEX else host


def _path(host: str, name: str) -> str:
    scheme = "http" if host.partition(":")[0] in _LOOPBACK else "https"
    return f"{scheme}://{_HOSTS.get(host, host)}/v2/{name}"


def _json_object(data: bytes) -> Mapping[str, Any]:
    """Parse a registry's answer.

    Raises:
        urllib3.exceptions.DecodeError: it is something else, such as the login page of a proxy.
    """
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise urllib3.exceptions.DecodeError("the answer is no JSON object")
    return found


class NoChartError(Exception):
    """A registry or repository does not have the chart, or does not answer."""


@dataclass(frozen=True)
class Unavailable:
    """A manifest that the registry did not return, and why."""

    answer: str


@dataclass(frozen=True)
class MissingArchitectures:
    """An image that exists, but not for all requested architectures."""

    architectures: tuple[str, ...]
    """Architectures of the image."""

    @property
    def answer(self) -> str:
        """The problem, in words."""
        known = " and ".join(self.architectures)
        return f"for {known} only" if known else "names no architecture"


@dataclass(frozen=True)
class Registries:
    """Client of registries, with the credentials for each host."""

    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Host → base64 of `user:password`."""
    http: urllib3.PoolManager = field(default_factory=urllib3.PoolManager, repr=False)
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)

    @classmethod
    def from_docker_config(cls, environ: Mapping[str, str] = os.environ) -> "Registries":
        """Read the logins in Docker's configuration file; credential helpers are not run.

        Raises:
            InputError: the file is not as Docker writes it.
        """
        folder = environ.get("DOCKER_CONFIG") or Path(environ.get("HOME", "/")) / ".docker"
        file = Path(folder) / "config.json"
        try:
            entries = json.loads(file.read_text()).get("auths") or {} if file.is_file() else {}
            found = {key: str(entry["auth"]) for key, entry in entries.items() if entry.get("auth")}
        except (OSError, ValueError, AttributeError, TypeError) as error:
            got, fix = (
                f"{type(error).__name__}: {error}",
                "correct it, or set DOCKER_CONFIG to another folder",
            )
            raise InputError([Problem(str(file), got, "Docker's configuration", fix)]) from None
        # A login for the host overrides one for a URL of that host.
        return cls({_login_host(key): auth for key, auth in found.items()} | found)

    def find_problem(
        self, reference: str, architectures: Collection[str] = ()
    ) -> Unavailable | MissingArchitectures | None:
        """Return why an image is unusable: no manifest, or not for all of `architectures`; else None."""
        host, name, version = parse_reference(reference)
        path = _path(host, name)
        try:
            answer = self._ask("GET" if architectures else "HEAD", host, f"{path}/manifests/{version}")
            if answer.status == 200 and architectures:
                found = self._architectures(host, path, _json_object(answer.data))
                return None if found >= {*architectures} else MissingArchitectures(tuple(sorted(found)))
        except urllib3.exceptions.HTTPError as error:
            return Unavailable(f"{host} cannot be reached ({type(error).__name__})")
        if answer.status == 200:
            return None
        return Unavailable(_REASONS.get(answer.status, f"status {answer.status}"))

    def digest(self, reference: str) -> str | Unavailable:
        """Return the digest that a tag has now; for an image of several architectures, its index's."""
        host, name, version = parse_reference(reference)
        try:
            answer = self._with_retries("GET", host, f"{_path(host, name)}/manifests/{version}")
        except urllib3.exceptions.HTTPError as error:
            return Unavailable(f"{host} cannot be reached ({type(error).__name__})")
        if answer.status != 200:
            return Unavailable(_REASONS.get(answer.status, f"status {answer.status}"))
        found = f"sha256:{hashlib.sha256(answer.data).hexdigest()}"
        digest = answer.headers.get("Docker-Content-Digest", found)
        return found if digest == found else Unavailable(f"{host} names digest {digest}, but sent {found}")

    def _with_retries(self, method: str, host: str, url: str) -> urllib3.BaseHTTPResponse:
        """Send the request, and repeat it after the delay that an overloaded registry asks for."""
        for tried in range(_TRIES):
            answer = self._ask(method, host, url)
            asked = answer.headers.get("Retry-After", "")
            wait = float(asked) if asked.isdecimal() else 2.0**tried
            if answer.status != _TOO_MANY or wait > _MAX_WAIT_SECONDS:
                break
            self.sleep(wait)
        return answer

    def image(self, reference: str) -> "RegistryImage":
        """Return a reader of an image's parts; no request is sent yet."""
        host, name, version = parse_reference(reference)
        return RegistryImage(self, host, _path(host, name), version)

    def read(self, host: str, url: str) -> bytes:
        """Return the content at a registry's URL.

        Raises:
            UnreadableImageError: the content cannot be read; the text is the reason.
        """
        return self._found(host, url).data

    @contextmanager
    def stream(self, host: str, url: str) -> Iterator[io.BufferedReader]:
        """Open the content at a registry's URL as a stream, which can be read once, and in part.

        Raises:
            UnreadableImageError: the content does not exist, or the connection broke.
        """
        answer = self._found(host, url, preload=False)
        try:
            yield io.BufferedReader(cast(io.RawIOBase, answer), _CHUNK_BYTES)
        except urllib3.exceptions.HTTPError as error:
            raise UnreadableImageError(f"the connection to {host} broke ({type(error).__name__})") from error
        finally:
            answer.close()

    def _found(self, host: str, url: str, *, preload: bool = True) -> urllib3.BaseHTTPResponse:
        try:
            answer = self._ask("GET", host, url, preload=preload)
        except urllib3.exceptions.HTTPError as error:
            raise UnreadableImageError(f"{host} cannot be reached ({type(error).__name__})") from error
        if answer.status != 200:
            raise UnreadableImageError(_REASONS.get(answer.status, f"status {answer.status}"))
        return answer

    def chart_digest(self, reference: str) -> str:
        """Return the SHA-256 of a chart's archive that a registry has; empty if it has none.

        Raises:
            NoChartError: the registry cannot be reached.
        """
        host, name, version = parse_reference(reference)
        try:
            answer = self._ask("GET", host, f"{_path(host, name)}/manifests/{version}")
            layers = _json_object(answer.data).get("layers", ()) if answer.status == 200 else ()
        except urllib3.exceptions.HTTPError as error:
            raise NoChartError(f"{host} cannot be reached ({type(error).__name__})") from error
        digests = [layer["digest"] for layer in layers if layer.get("mediaType") == _CHART]
        return str(digests[0]).removeprefix("sha256:") if digests else ""

    def _architectures(self, host: str, path: str, manifest: Mapping[str, Any]) -> set[str]:
        """Architectures of a manifest: those of an index, or the one in an image's configuration."""
        if "manifests" in manifest:
            found = {
                each.get("platform", {}).get("architecture", "unknown") for each in manifest["manifests"]
            }
            return found - {"unknown"}  # attestations
        blob = self._ask("GET", host, f"{path}/blobs/{manifest['config']['digest']}")
        named = _json_object(blob.data).get("architecture") if blob.status == 200 else None
        return {str(named)} if named else set()

    def _ask(self, method: str, host: str, url: str, *, preload: bool = True) -> urllib3.BaseHTTPResponse:
        """Send a request, again with a credential if the registry requires one; `preload` reads the body."""
        answer = self._once(method, url, {}, preload=preload)
        if answer.status != 401:
            return answer
        answer.drain_conn()
        login = self._authorization(host, answer.headers.get("WWW-Authenticate", ""))
        return self._once(method, url, login, preload=preload)

    def _once(
        self, method: str, url: str, headers: Mapping[str, str], *, preload: bool
    ) -> urllib3.BaseHTTPResponse:
        return self.http.request(
            method,
            url,
            headers={"Accept": _TYPES, **headers},
            timeout=_TIMEOUT_SECONDS,
            retries=RETRIES,
            preload_content=preload,
        )

    def _authorization(self, host: str, challenge: str) -> dict[str, str]:
        """Return the Authorization header that a challenge asks for: a token, or the login itself."""
        login = {"Authorization": f"Basic {self.credentials[host]}"} if host in self.credentials else {}
        scheme, _, rest = challenge.partition(" ")
        if scheme.lower() != "bearer":
            return login
        asked = dict(re.findall(r'(\w+)="([^"]*)"', rest))
        realm = asked.pop("realm", "")
        answer = self.http.request(
            "GET", realm, fields=asked, headers=login, timeout=_TIMEOUT_SECONDS, retries=RETRIES
        )
        if answer.status != 200:
            return login
        data = _json_object(answer.data)
        return {"Authorization": f"Bearer {data.get('token') or data.get('access_token')}"}


@dataclass(frozen=True)
class RegistryImage:
    """Reads the parts of an image in a registry, for `read_image`."""

    registries: Registries
    host: str
    path: str
    version: str

    def manifest(self, architecture: str) -> Mapping[str, Any]:
        found = self._json(f"manifests/{self.version}")
        while "manifests" in found:
            found = self._json(f"manifests/{chosen(found['manifests'], architecture)['digest']}")
        return found

    def json(self, digest: str) -> Mapping[str, Any]:
        return self._json(f"blobs/{digest}")

    def open(self, digest: str) -> AbstractContextManager[io.BufferedReader]:
        return self.registries.stream(self.host, f"{self.path}/blobs/{digest}")

    def _json(self, path: str) -> Mapping[str, Any]:
        try:
            return _json_object(self.registries.read(self.host, f"{self.path}/{path}"))
        except urllib3.exceptions.DecodeError as error:
            raise UnreadableImageError(f"{path} from {self.host}: {error}") from error
