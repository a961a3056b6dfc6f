"""HTTP client of Azure Resource Manager, with a token of the Azure command line."""

import json
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from infra.errors import HostError, Problem, TrainyardError

MANAGEMENT = "https://management.azure.com"
TIMEOUT_SECONDS = 60.0
COMMAND_SECONDS = 120
"""Timeout of an `az` command."""
Answer = dict[str, Any]


class NotAskedError(Exception):
    """No access: the command line is missing, or not signed in."""


def by_command_line(*words: str) -> Any:  # noqa: ANN401 -- JSON
    """Run `az`. Raises NotAskedError."""
    program = shutil.which("az")
    if program is None:
        raise NotAskedError("no `az` on PATH (install the Azure CLI)")
    command = [program, *words, "--output", "json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=COMMAND_SECONDS)
    except subprocess.CalledProcessError as error:
        stderr_lines = error.stderr.strip().splitlines()
        raise NotAskedError(
            f"`az {words[0]} {words[1]}`: {stderr_lines[-1] if stderr_lines else 'failed'}"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise NotAskedError(
            f"`az {words[0]} {words[1]}` did not answer within {COMMAND_SECONDS} s"
        ) from error
    return json.loads(done.stdout or "null")


class AzureRefusedError(TrainyardError):
    """Azure refuses a request."""

    def __init__(self, call: str, status: int, message: str) -> None:
        self.status, self.message = status, message
        fix = "get the permission that the message names, or sign in to the stack's tenant"
        super().__init__([Problem(call, f"{status}: {message}", "an answer", fix)])


@dataclass(frozen=True)
class AzureClient:
    """A client. Another `transport` answers in tests."""

    token: str = field(repr=False)
    transport: httpx.BaseTransport | None = None

    @classmethod
    def of_user(cls, subscription: str) -> "AzureClient":
        """Take a token for the subscription from `az`. Raises HostError where it gives none."""
        words = ("account", "get-access-token", "--resource", MANAGEMENT, "--subscription", subscription)
        try:
            return cls(by_command_line(*words)["accessToken"])
        except NotAskedError as error:
            fix = "`az login`, with the stack's tenant"
            raise HostError([Problem("Azure's credentials", str(error), "a token", fix)]) from error

    def find(self, resource_id: str, parameters: Mapping[str, str]) -> Answer | None:
        """Return the resource at a path, or at the link to a further page; None if it does not exist.

        Raises AzureRefusedError.
        """
        url = resource_id if resource_id.startswith("https://") else f"{MANAGEMENT}{resource_id}"
        with self._client() as client:
            response = client.get(url, params=parameters or None)
        if response.status_code == httpx.codes.NOT_FOUND:
            return None
        if response.is_error:
            raise AzureRefusedError(f"GET {url}", response.status_code, _message(response))
        answer: Answer = response.json()
        return answer

    def put(self, resource_id: str, version: str, body: Mapping[str, Any]) -> None:
        """Create or update the resource at a path, and return when that is done.

        Raises AzureRefusedError.
        """
        url = f"{MANAGEMENT}{resource_id}"
        with self._client() as client:
            response = client.put(url, params={"api-version": version}, json=dict(body))
            while response.status_code == httpx.codes.ACCEPTED:
                time.sleep(float(response.headers.get("Retry-After", 1)))
                response = client.get(response.headers.get("Location", url))
        if response.is_error:
            raise AzureRefusedError(f"PUT {url}", response.status_code, _message(response))

    def _client(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.Client(transport=self.transport, timeout=TIMEOUT_SECONDS, headers=headers)


def _message(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return response.text[:500]
