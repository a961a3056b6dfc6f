"""Requests to the API server from a pod, by the standard library, with a service account's token."""

import json
import os
import ssl
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

Object = Mapping[str, Any]
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
ANSWER_SECONDS = 30.0
TOKEN_SECONDS = 3600
"""Seconds for which a task's token is valid; half of it is used."""
MANAGER = "trainyard-controller"
"""Field manager of server-side apply."""


def timestamp(precision: str = "seconds") -> str:
    """Return the time as Kubernetes writes it; in a Lease with `microseconds`."""
    return datetime.now(UTC).isoformat(timespec=precision).replace("+00:00", "Z")


class RefusedError(Exception):
    """The API server refused a request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


@dataclass(frozen=True)
class Api:
    """The API server, for one service account. Methods raise RefusedError, or OSError without an answer."""

    address: str
    tls: ssl.SSLContext
    credential: Callable[[], str]
    """Returns a valid token of the account."""

    @classmethod
    def of_pod(cls) -> "Api":
        """Return the API server of this pod's cluster, with the pod's own account."""
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        tls = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
        # The kubelet renews the file.
        return cls(
            f"https://{f'[{host}]' if ':' in host else host}:{port}", tls, (ACCOUNT / "token").read_text
        )

    def as_account(self, namespace: str, name: str) -> "Api":
        """Return the same server for another account, whose tokens this one may ask for."""
        path, known = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", (0.0, "")

        def token() -> str:
            nonlocal known
            if time.monotonic() >= known[0]:
                asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
                answer = self.create(path, {**asked, "spec": {"expirationSeconds": TOKEN_SECONDS}})
                known = (time.monotonic() + TOKEN_SECONDS / 2, answer["status"]["token"])
            return known[1]

        return Api(self.address, self.tls, token)

    def items(self, path: str) -> list[Object]:
        """Return the objects of a list, from the API server's cache."""
        return list(self._ask("GET", f"{path}?resourceVersion=0").get("items") or ())

    def find(self, path: str) -> Object | None:
        """Return the object at a path; None where there is none."""
        try:
            return self._ask("GET", path)
        except RefusedError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return None

    def create(self, path: str, body: Object) -> Object:
        """Create an object in the collection at a path."""
        return self._ask("POST", path, body)

    def replace(self, path: str, body: Object) -> Object:
        """Replace an object, if it still has the body's `resourceVersion`."""
        return self._ask("PUT", path, body)

    def merge(self, path: str, body: Object) -> Object:
        """Change some fields of an object."""
        return self._ask("PATCH", path, body, "application/merge-patch+json")

    def apply(self, path: str, body: Object) -> Object:
        """Own some fields of an object, whoever owned them."""
        return self._ask(
            "PATCH", f"{path}?fieldManager={MANAGER}&force=true", body, "application/apply-patch+yaml"
        )

    def _ask(
        self, verb: str, path: str, body: Object | None = None, kind: str = "application/json"
    ) -> Object:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.credential().strip()}", "Content-Type": kind}
        request = urllib.request.Request(self.address + path, data, headers, method=verb)  # noqa: S310 -- https
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS, context=self.tls) as answer:  # noqa: S310
                found: Object = json.load(answer)
                return found
        except HTTPError as error:
            raise RefusedError(error.code, error.read(2000).decode(errors="replace")) from None
