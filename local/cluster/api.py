"""HTTPS client of the embedded cluster's Kubernetes API, with a client certificate. A request that fails or
is refused raises `TrainyardError`.
"""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any

import httpx

from infra.errors import Problem, TrainyardError
from local.cluster.pki import KeyPair

MANAGER = "trainyard"
Object = dict[str, Any]
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"


class ApiServerClient:
    """A client with the administrator's certificate."""

    def __init__(self, endpoint: str, authority: Path, identity: KeyPair) -> None:
        context = ssl.create_default_context(cafile=str(authority))
        context.load_cert_chain(identity.certificate, identity.key)
        # No proxy from the environment: the address is reachable only from this host.
        self._http = httpx.Client(base_url=endpoint, verify=context, timeout=10, trust_env=False)

    def is_ready(self) -> bool:
        """Whether it serves, with everything it sets up at its start."""
        try:
            return self._http.get("/readyz", timeout=5).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def get(self, path: str, **query: str) -> Object:
        """Read an object or a list."""
        return _body(self._request("GET", path, params=query))

    def exists(self, path: str) -> bool:
        return self._request("GET", path).status_code == httpx.codes.OK

    def apply(self, path: str, content: Object) -> Object:
        """Server-side apply: create it, or change just the fields that are ours."""
        return _body(self._patch(path, content, _APPLY, fieldManager=MANAGER, force="true"))

    def merge(self, path: str, content: Object) -> Object:
        """Change these fields, lists as a whole."""
        return _body(self._patch(path, content, _MERGE))

    def merge_status(self, path: str, content: Object) -> None:
        """Change these fields of the status, conditions by their type; nothing if it does not exist."""
        _body_if_found(self._patch(f"{path}/status", {"status": content}, _STRATEGIC))

    def delete(self, path: str, *, immediately: bool = False) -> None:
        """Delete it, `immediately` without grace; nothing if it does not exist."""
        query = {"gracePeriodSeconds": "0"} if immediately else {}
        _body_if_found(self._request("DELETE", path, params=query))

    def _patch(self, path: str, content: Object, kind: str, **query: str) -> httpx.Response:
        headers = {"content-type": kind}
        return self._request("PATCH", path, content=json.dumps(content), headers=headers, params=query)

    def _request(self, method: str, path: str, **arguments: Any) -> httpx.Response:  # noqa: ANN401
        try:
            return self._http.request(method, path, **arguments)
        except httpx.TransportError as error:
            fix = "check that the cluster is up (`trainyard status`), then run this again"
            raise TrainyardError([Problem(f"{method} {path}", str(error), "an answer", fix)]) from error


def _body(response: httpx.Response) -> Object:
    if response.is_error:
        request, fix = response.request, "see the API server's log in run/control"
        what, got = f"{request.method} {request.url.path}", response.text.strip()
        raise TrainyardError([Problem(what, got, "a status below 400", fix)])
    body: Object = response.json()
    return body


def _body_if_found(response: httpx.Response) -> None:
    if response.status_code != httpx.codes.NOT_FOUND:
        _body(response)
