"""Kubernetes API requests (lists, logs, custom objects) that return plain data and bypass the client's
generated models.

The client's module of the core API makes a model of each of its types as it is imported, which takes 0.4 s of
every command (kubernetes 37). What reads lists, logs and versions needs none of them.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

from kubernetes.client import ApiClient
from kubernetes.client.exceptions import ApiException
from kubernetes.utils.keepalive import tcp_keepalive_socket_options
from urllib3 import Retry, Timeout

CONNECT_SECONDS = 10.0
"""Seconds to wait for a connection: a private endpoint drops packets, so that only a timeout shows it."""
ANSWER_SECONDS = 30.0
"""Seconds to wait for the next bytes of an answer: a NAT or a proxy may drop a connection silently."""
SILENCE_SECONDS = 60.0
"""Seconds without a line after which a log's connection counts as cut; a quiet log is only read anew."""
_PROBED_SECONDS, _PROBE_SECONDS, _PROBES = 15, 5, 3
RETRIES = Retry(3, read=1)
"""Attempts of a request: one more after a missing answer, on a new connection."""
Query = Mapping[str, str | int | Sequence[str]]


def socket_options() -> list[tuple[int, int, int]]:
    """Return options by which the kernel notices within half a minute that a peer is gone, idle or not."""
    options = tcp_keepalive_socket_options(_PROBED_SECONDS, _PROBE_SECONDS, _PROBES)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux: for bytes that were sent, which keepalive does not cover
        limit = _PROBED_SECONDS + _PROBE_SECONDS * _PROBES
        options.append((socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit * 1000))
    return options


def get(api: ApiClient, path: str, query: Query = MappingProxyType({})) -> Any:  # noqa: ANN401 -- JSON
    """Return the object or list at a path of the API server, such as `/api/v1/namespaces`.

    Raises:
        ApiException: the API server refused the request.
        urllib3.exceptions.HTTPError: it did not answer.
    """
    return json.loads(read(api, path, query))


def read(
    api: ApiClient, path: str, query: Query = MappingProxyType({}), seconds: float | None = None
) -> bytes:
    """Return the bytes at a path, such as a log; `seconds`: until an answer, with no second try.

    Raises:
        ApiException: the API server refused the request.
        urllib3.exceptions.HTTPError: it did not answer.
    """
    return _answer(api, "GET", url(api, path, query), seconds=seconds)


def stream(api: ApiClient, path: str, query: Query) -> Iterator[bytes]:
    """Yield the bytes at a path as they come, such as those of a log that is followed.

    Raises:
        ApiException: the API server refused the request.
        urllib3.exceptions.HTTPError: the connection broke off, or nothing came for `SILENCE_SECONDS`.
    """
    pool: Any = api.rest_client.pool_manager
    answer = pool.request(
        "GET",
        url(api, path, query),
        headers=credentials(api),
        preload_content=False,
        retries=False,  # a caller continues behind the last line instead
        timeout=Timeout(connect=CONNECT_SECONDS, read=SILENCE_SECONDS),
    )
    try:
        if answer.status != 200:
            raise _refusal(answer.status, answer.reason, answer.read())
        yield from answer.stream(amt=None)
    finally:
        answer.close()


class CustomObjects:
    """The used part of the client's `CustomObjectsApi`, whose module takes 0.1 s to import."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def list_cluster_custom_object(self, group: str, version: str, plural: str) -> Any:  # noqa: ANN401
        return get(self._api, f"/apis/{group}/{version}/{plural}")

    def list_namespaced_custom_object(
        self, group: str, version: str, namespace: str, plural: str, **query: str | int
    ) -> Any:  # noqa: ANN401
        return get(self._api, _collection(group, version, namespace, plural), query)

    def get_namespaced_custom_object(
        self, group: str, version: str, namespace: str, plural: str, name: str
    ) -> Any:  # noqa: ANN401
        return get(self._api, f"{_collection(group, version, namespace, plural)}/{name}")

    def create_namespaced_custom_object(
        self, group: str, version: str, namespace: str, plural: str, body: object
    ) -> None:
        address = url(self._api, _collection(group, version, namespace, plural), {})
        _answer(self._api, "POST", address, body)

    def patch_namespaced_custom_object(  # noqa: PLR0917 -- as the client has it
        self, group: str, version: str, namespace: str, plural: str, name: str, body: object
    ) -> None:
        address = url(self._api, f"{_collection(group, version, namespace, plural)}/{name}", {})
        _answer(self._api, "PATCH", address, body, kind="application/merge-patch+json")

    def delete_namespaced_custom_object(
        self,
        group: str,
        version: str,
        namespace: str,
        plural: str,
        name: str,
        *,
        body: object,
        propagation_policy: str,
    ) -> None:
        path = f"{_collection(group, version, namespace, plural)}/{name}"
        _answer(self._api, "DELETE", url(self._api, path, {"propagationPolicy": propagation_policy}), body)


def _collection(group: str, version: str, namespace: str, plural: str) -> str:
    return f"/apis/{group}/{version}/namespaces/{namespace}/{plural}"


def _answer(
    api: ApiClient,
    method: str,
    address: str,
    body: object = None,
    *,
    kind: str = "application/json",
    seconds: float | None = None,
) -> bytes:
    pool: Any = api.rest_client.pool_manager
    given = {} if body is None else {"body": json.dumps(body).encode()}
    headers = credentials(api) | ({} if body is None else {"Content-Type": kind})
    waits = Timeout(connect=CONNECT_SECONDS, read=ANSWER_SECONDS)
    tries = {"retries": False, "timeout": seconds} if seconds else {"retries": RETRIES, "timeout": waits}
    answer = pool.request(method, address, headers=headers, **given, **tries)
    if not 200 <= answer.status < 300:
        raise _refusal(answer.status, answer.reason, answer.data)
    return bytes(answer.data)


def _refusal(status: int, reason: str, body: bytes) -> ApiException:
    error = ApiException(status=status, reason=reason)
    error.body = body.decode(errors="replace")
    return error


def url(api: ApiClient, path: str, query: Query) -> str:
    """Return the address of a path; of a query's value that is a list, each is given by itself."""
    host = str(api.configuration.host).rstrip("/")
    return f"{host}{path}" + (f"?{urlencode(query, doseq=True)}" if query else "")


def credentials(api: ApiClient) -> dict[str, str]:
    """Return the headers by which the user is known, where that is not by a certificate."""
    settings: Any = api.configuration
    ways = settings.auth_settings().values()
    return {way["key"]: way["value"] for way in ways if way["in"] == "header" and way["value"]}
