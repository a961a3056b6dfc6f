"""HTTP client of Google Cloud's JSON APIs, with a token from GOOGLE_OAUTH_ACCESS_TOKEN or from `gcloud`."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from infra.errors import HostError, Problem, TrainyardError

TOKEN = "GOOGLE_OAUTH_ACCESS_TOKEN"  # noqa: S105 -- the variable that the Google Cloud provider reads
COMPUTE = "https://compute.googleapis.com/compute/v1"
TIMEOUT_SECONDS = 60.0
Answer = dict[str, Any]


class GcpRefusedError(TrainyardError):
    """Google Cloud refuses a request."""

    def __init__(self, call: str, status: int, message: str) -> None:
        self.status, self.message = status, message
        fix = "get the permission, or enable the API, that the message names"
        super().__init__([Problem(call, f"{status}: {message}", "an answer", fix)])


@dataclass(frozen=True)
class GcpClient:
    """A client. Another `transport` answers in tests."""

    token: str
    transport: httpx.BaseTransport | None = None

    @classmethod
    def of_user(cls) -> "GcpClient":
        """Take the token of the environment, else that of `gcloud`. Raises HostError for none."""
        return cls(os.environ.get(TOKEN) or _gcloud())

    def ask(
        self, method: str, url: str, body: Mapping[str, Any] | None = None, **parameters: str | list[str]
    ) -> Answer:
        """Make a call and return its answer. Raises GcpRefusedError."""
        headers = {"Authorization": f"Bearer {self.token}"}
        with httpx.Client(transport=self.transport, timeout=TIMEOUT_SECONDS, headers=headers) as client:
            response = client.request(method, url, json=body, params=parameters)
        if response.is_error:
            raise GcpRefusedError(f"{method} {url}", response.status_code, _message(response))
        answer: Answer = response.json() if response.content else {}
        return answer

    def find(self, url: str, parameters: Mapping[str, str] = {}) -> Answer | None:
        """Return the resource at an address; None if it does not exist. Raises GcpRefusedError."""
        try:
            return self.ask("GET", url, None, **parameters)
        except GcpRefusedError as error:
            if error.status == httpx.codes.NOT_FOUND:
                return None
            raise


def _message(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return response.text[:500]


def _gcloud() -> str:
    command = ["gcloud", "auth", "application-default", "print-access-token"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        message = getattr(error, "stderr", "") or str(error)
        fix = f"`gcloud auth application-default login`, or set {TOKEN}"
        raise HostError([Problem("Google Cloud credentials", message.strip(), "a token", fix)]) from error
