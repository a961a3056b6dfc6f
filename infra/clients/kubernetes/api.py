"""`ApiServer`: requests to an API server, as plain data. Each ends: without an answer, or with a refusal."""

import json
import socket
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.client import responses
from pathlib import Path
from ssl import SSLContext
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

import yaml
from urllib3 import HTTPHeaderDict, PoolManager, ProxyManager, Retry, Timeout, make_headers
from urllib3.exceptions import HTTPError

from infra.clients.kubernetes.access import ClusterAccess
from infra.errors import Problem, TrainyardError

CONNECT_SECONDS = 10.0
"""Seconds to wait for a connection: a private endpoint drops packets, so that only a timeout shows it."""
ANSWER_SECONDS = 30.0
"""Seconds to wait for the next bytes of an answer: a NAT or a proxy may drop a connection silently."""
SILENCE_SECONDS = 60.0
"""Seconds without a line after which a log's connection counts as cut; a quiet log is only read anew."""
RETRIES = Retry(3, read=1, raise_on_status=False)
"""Repetitions of a request: without a connection; on a new one after a missing answer, and after an answer
that puts it off (429 with Retry-After), unless it creates or changes something.
"""
MOST_CONNECTIONS = 32
"""Number of connections that are kept for further requests: one for each log that is followed, and some."""
MANAGER = "trainyard"
"""Field manager of server-side apply."""
_PROBED_SECONDS, _PROBE_SECONDS, _PROBES = 15, 5, 3
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"
Object = Mapping[str, Any]
Query = Mapping[str, str | int | Sequence[str]]
Kind = tuple[str, str, str]
"""API group, version and resource of a kind."""
_NOTHING: Query = MappingProxyType({})


class ApiError(TrainyardError):
    """The API server refused a request."""

    def __init__(self, status: int, message: str, what: str = "the cluster's API") -> None:
        fix = {
            401: "sign in again: the credentials have expired, or the cluster does not accept them",
            403: "request the permission, or name a context of yours that has it (`--context NAME`)",
            422: "correct what the message names, and run the command again",
        }.get(status, "run the command again; if it fails again, look at the cluster with kubectl")
        super().__init__([Problem(what, f"{status}: {message}", "an answer", fix)])
        self.status, self.message = status, message

    @classmethod
    def of(cls, status: int, body: bytes, what: str = "the cluster's API") -> "ApiError":
        """Return the error of an answer: the message of its Status, and nothing else of what it has."""
        try:
            message = str(json.loads(body)["message"])
        except (ValueError, KeyError, TypeError):
            message = responses.get(status, "an answer that is not a Status")
        return cls(status, message, what)


class NoAnswer(TrainyardError, ConnectionError):  # noqa: N818 -- as TimeoutError's siblings are named
    """The API server is out of reach, or no longer answers."""

    def __init__(self, message: str) -> None:
        fix = "bring the embedded cluster up, or restore the connection; submitted jobs continue"
        super().__init__([Problem("the cluster's API", message, "an answer", fix)])
        self.message = message


def socket_options() -> list[tuple[int, int, int]]:
    """Return options by which the kernel notices within half a minute that a peer is gone, idle or not."""
    probes = {"TCP_KEEPIDLE": _PROBED_SECONDS, "TCP_KEEPINTVL": _PROBE_SECONDS, "TCP_KEEPCNT": _PROBES}
    # For bytes that were sent, which keepalive does not cover; Linux has it.
    probes["TCP_USER_TIMEOUT"] = (_PROBED_SECONDS + _PROBE_SECONDS * _PROBES) * 1000
    tcp = [
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in probes.items()
        if hasattr(socket, name)
    ]
    return [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *tcp]


class ApiServer:
    """One cluster's API server, for one user and all threads."""

    def __init__(self, access: ClusterAccess) -> None:
        self.access = access
        self._connections: PoolManager | None = None
        self._tls: object = None

    @classmethod
    def of(cls, kubeconfig: str, keys: Path | None = None, *, proxied: bool = True) -> "ApiServer":
        """Return the API server of a kubeconfig's text; see `ClusterAccess` for its arguments and errors."""
        return cls(ClusterAccess(yaml.load(kubeconfig, Loader=yaml.CSafeLoader), keys, proxied=proxied))

    @property
    def address(self) -> str:
        """URL of the API server."""
        return self.access.address

    def get(self, path: str, query: Query = _NOTHING) -> Any:  # noqa: ANN401 -- JSON
        """Return the object or list at a path, such as `/api/v1/namespaces`.

        Raises:
            ApiError: the API server refused the request.
            NoAnswer: it did not answer.
        """
        return json.loads(self.read(path, query))

    def items(
        self,
        path: str,
        query: Query = _NOTHING,
        *,
        empty_on: Container[int] = (),
        seconds: float | None = None,
    ) -> list[Any]:
        """Return the objects of a list; `empty_on`: statuses of refusals that count as a list of nothing.

        Raises as `get` does.
        """
        try:
            found = json.loads(self.read(path, query, seconds=seconds))
        except ApiError as error:
            if error.status not in empty_on:
                raise
            return []
        return list(found.get("items") or ())

    def find(self, path: str) -> Any:  # noqa: ANN401 -- JSON
        """Return the object at a path, or None where there is none. Raises as `get` does."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return None

    def read(
        self, path: str, query: Query = _NOTHING, *, seconds: float | None = None, accept: str = "*/*"
    ) -> bytes:
        """Return the bytes at a path, such as a log; `seconds`: until an answer, with no second try.

        Raises as `get` does.
        """
        return self._answer("GET", path, query, seconds=seconds, accept=accept)

    def stream(self, path: str, query: Query, *, silence: float | None = None) -> Iterator[bytes]:
        """Yield the bytes at a path as they come, such as those of a log that is followed.

        Raises:
            ApiError: the API server refused the request.
            NoAnswer: the connection broke off, or nothing came for `silence`, by default SILENCE_SECONDS.
        """
        with _explained(self.address):
            pool, headers = self._pool()
            answer = pool.request(
                "GET",
                url(self.address, path, query),
                headers=headers,
                preload_content=False,
                redirect=False,
                retries=False,  # a caller continues behind the last line instead
                timeout=Timeout(connect=CONNECT_SECONDS, read=silence or SILENCE_SECONDS),
            )
            try:
                if answer.status >= HTTPStatus.BAD_REQUEST:
                    answer.read(cache_content=True)
                    raise ApiError.of(answer.status, answer.data)
                yield from answer.stream(amt=None)
            finally:
                answer.close()

    def watch(self, path: str, query: Query = _NOTHING, *, silence: float | None = None) -> Iterator[Object]:
        """Yield the objects of a list as `{"type": "ADDED", "object": …}`, then each change of one.

        Raises as `stream` does.
        """
        for line in whole_lines(self.stream(path, {**query, "watch": "true"}, silence=silence)):
            yield json.loads(line)

    def create(self, path: str, body: Object, query: Query = _NOTHING, *, user: str = "") -> Any:  # noqa: ANN401 -- JSON
        """Create an object in a collection, as another `user` if one is named. Raises as `get` does.

        It is never repeated.
        """
        return json.loads(self._answer("POST", path, query, body, user=user))

    def apply(self, path: str, content: Object) -> Any:  # noqa: ANN401 -- JSON
        """Server-side apply: create it, or change just the fields that are ours. Raises as `get` does."""
        query = {"fieldManager": MANAGER, "force": "true"}
        return json.loads(self._answer("PATCH", path, query, content, kind=_APPLY))

    def merge(self, path: str, content: Object) -> Any:  # noqa: ANN401 -- JSON
        """Change these fields, lists as a whole. Raises as `get` does."""
        return json.loads(self._answer("PATCH", path, {"fieldManager": MANAGER}, content, kind=_MERGE))

    def merge_status(self, path: str, content: Object) -> None:
        """Change these fields of the status, conditions by their type; nothing if it does not exist."""
        try:
            self._answer("PATCH", f"{path}/status", _NOTHING, {"status": content}, kind=_STRATEGIC)
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise

    def delete(self, path: str, query: Query = _NOTHING, body: Object | None = None) -> bool:
        """Delete it; return whether there was such an object. Raises as `get` does."""
        try:
            self._answer("DELETE", path, query, body)
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return False
        return True

    def is_ready(self) -> bool:
        """Whether it serves, with everything it sets up at its start."""
        try:
            self.read("/readyz", seconds=5)
        except (ApiError, NoAnswer):
            return False
        return True

    def _answer(
        self,
        method: str,
        path: str,
        query: Query,
        body: Object | None = None,
        *,
        kind: str = "application/json",
        seconds: float | None = None,
        accept: str = "*/*",
        user: str = "",
    ) -> bytes:
        content = None if body is None else json.dumps(body).encode()
        waits = Timeout(connect=seconds or CONNECT_SECONDS, read=seconds or ANSWER_SECONDS)
        with _explained(self.address):
            pool, headers = self._pool()
            headers["Accept"] = accept
            if user:
                headers["Impersonate-User"] = user
            if content:
                headers["Content-Type"] = kind
            answer = pool.request(
                method,
                url(self.address, path, query),
                headers=headers,
                body=content,
                redirect=False,
                retries=False if seconds else RETRIES,
                timeout=waits,
            )
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise ApiError.of(answer.status, answer.data)
        return bytes(answer.data)

    def _pool(self) -> tuple[PoolManager, HTTPHeaderDict]:
        """Return the connections, and the headers of the user's present credential."""
        tls, headers = self.access.now()
        if self._connections is None or self._tls is not tls:
            self._connections, self._tls = _connections(self.access, tls), tls
        return self._connections, HTTPHeaderDict(headers)


def _connections(access: ClusterAccess, tls: SSLContext) -> PoolManager:
    options: dict[str, Any] = {
        "ssl_context": tls,
        "server_hostname": access.server_name,
        "assert_hostname": None if tls.check_hostname else False,
        "socket_options": socket_options(),
        "maxsize": MOST_CONNECTIONS,
    }
    if not access.proxy:
        return PoolManager(**options)
    sign_in = ":".join(access.proxy_user) or None
    return ProxyManager(access.proxy, proxy_headers=make_headers(proxy_basic_auth=sign_in), **options)


@contextmanager
def _explained(address: str) -> Iterator[None]:
    try:
        yield
    except (HTTPError, OSError) as error:
        raise NoAnswer(f"{address}: {getattr(error, 'reason', None) or error}") from error


def path_of(kind: Kind, namespace: str = "", name: str = "") -> str:
    """Return the path of a kind's objects, of those in a namespace, or of one; the core has no group."""
    group, version, plural = kind
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{within}/{plural}" + (f"/{name}" if name else "")


def url(address: str, path: str, query: Query) -> str:
    """Return the address of a path; of a query's value that is a list, each is given by itself."""
    return f"{address}{path}" + (f"?{urlencode(query, doseq=True)}" if query else "")


def whole_lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines of a stream without their line ends; an unfinished last line too."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    if rest:
        yield rest
