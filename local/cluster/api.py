"""The Kubernetes API over HTTPS: the few calls that the cluster makes itself."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any

import httpx

from local.cluster.pki import KeyPair

MANAGER = "trainyard"
Object = dict[str, Any]
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"


class ApiServer:
    """A client with the administrator's certificate."""

    def __init__(self, endpoint: str, authority: Path, identity: KeyPair) -> None:
        context = ssl.create_default_context(cafile=str(authority))
        context.load_cert_chain(identity.certificate, identity.key)
        # No proxy from the environment: the address is reachable only from this host.
        self._http = httpx.Client(base_url=endpoint, verify=context, timeout=10, trust_env=False)

    def is_ready(self) -> bool:
        """Whether it serves, with everything it sets up at its start."""
        try:
            return self._http.get("/readyz", timeout=2).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def get(self, path: str, **query: str) -> Object:
        """Read an object or a list."""
        return _body(self._http.get(path, params=query))

    def exists(self, path: str) -> bool:
        return self._http.get(path).status_code == httpx.codes.OK

    def apply(self, path: str, content: Object) -> Object:
        """Server-side apply: create it, or change just the fields that are ours."""
        query = {"fieldManager": MANAGER, "force": "true"}
        return _body(self._patch(path, content, _APPLY, query))

    def merge(self, path: str, content: Object) -> Object:
        """Change these fields, lists as a whole."""
        return _body(self._patch(path, content, _MERGE, {}))

    def merge_status(self, path: str, content: Object) -> None:
        """Change these fields of the status, conditions by their type; nothing when it is gone."""
        response = self._patch(f"{path}/status", {"status": content}, _STRATEGIC, {})
        if response.status_code != httpx.codes.NOT_FOUND:
            _body(response)

    def delete(self, path: str, *, now: bool = False) -> None:
        """Delete it, `now` without grace; nothing when it is gone."""
        query = {"gracePeriodSeconds": "0"} if now else {}
        response = self._http.delete(path, params=query)
        if response.status_code != httpx.codes.NOT_FOUND:
            _body(response)

    def _patch(self, path: str, content: Object, kind: str, query: dict[str, str]) -> httpx.Response:
        return self._http.patch(
            path, content=json.dumps(content), headers={"content-type": kind}, params=query
        )


def _body(response: httpx.Response) -> Object:
    if response.is_error:
        raise RuntimeError(f"{response.request.method} {response.request.url}: {response.text.strip()}")
    body: Object = response.json()
    return body
