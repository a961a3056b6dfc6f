"""The API server's answers as plain data: by paths, past the client's generated modules.

The client's module of the core API makes a model of each of its types as it is imported, which takes 0.4 s of
every command (kubernetes 37). What reads lists, logs and versions needs none of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

from kubernetes.client import ApiClient
from kubernetes.client.exceptions import ApiException

Query = Mapping[str, str | int | Sequence[str]]


def get(api: ApiClient, path: str, query: Query = MappingProxyType({})) -> Any:  # noqa: ANN401 -- JSON
    """Return what is at a path of the API server, such as `/api/v1/namespaces`.

    Raises:
        ApiException: it refused.
        urllib3.exceptions.HTTPError: it did not answer.
    """
    return json.loads(read(api, path, query))


def read(
    api: ApiClient, path: str, query: Query = MappingProxyType({}), seconds: float | None = None
) -> bytes:
    """Return the bytes at a path, such as a log; `seconds`: until an answer, with no second try.

    Raises:
        ApiException: it refused.
        urllib3.exceptions.HTTPError: it did not answer.
    """
    pool: Any = api.rest_client.pool_manager
    once = {"retries": False, "timeout": seconds} if seconds else {}
    answer = pool.request("GET", url(api, path, query), headers=credentials(api), **once)
    if not 200 <= answer.status < 300:
        error = ApiException(status=answer.status, reason=answer.reason)
        error.body = answer.data.decode(errors="replace")
        raise error
    return bytes(answer.data)


def url(api: ApiClient, path: str, query: Query) -> str:
    """Return the address of a path; of a query's value that is a list, each is given by itself."""
    host = str(api.configuration.host).rstrip("/")
    return f"{host}{path}" + (f"?{urlencode(query, doseq=True)}" if query else "")


def credentials(api: ApiClient) -> dict[str, str]:
    """Return the headers by which the user is known, where that is not by a certificate."""
    settings: Any = api.configuration
    ways = settings.auth_settings().values()
    return {way["key"]: way["value"] for way in ways if way["in"] == "header" and way["value"]}
