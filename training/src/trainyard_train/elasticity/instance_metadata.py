"""Polls a cloud's instance metadata service for preemption notices.

On Kubernetes a node's notice arrives as SIGTERM, through the cloud's agent. Where no such agent runs
(virtual machines, a cluster without one), the metadata service has it:

| cloud | what is asked | notice of other events than preemption |
|---|---|---|
| AWS | IMDSv2 `spot/instance-action` | – |
| Google Cloud | `instance/preempted`, `instance/maintenance-event` | 60 minutes |
| Azure | Scheduled Events | 5 to 15 minutes |

`notice_seconds` is the time from a spot VM's preemption notice to its end, as in `catalog/data/notices.yaml`.
Clouds whose nodes exist in Kubernetes only have no such service: the pods get SIGTERM.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from typing import ClassVar, Final
from urllib.parse import urlsplit

from trainyard_train.config_base import ConfigError
from trainyard_train.observability.rank_log import log_line

POLL_SECONDS: Final = 5.0
"""Polling interval, as AWS recommends it."""
_TIMEOUT_SECONDS: Final = 2.0
_AZURE_ENDS: Final = frozenset({"Preempt", "Terminate", "Redeploy", "Reboot"})


@dataclass
class Metadata:
    """A cloud's metadata service."""

    base: str
    """Base URL of the service, such as `http://169.254.169.254`."""

    def ask(self, path: str, headers: Mapping[str, str] | None = None, verb: str = "GET") -> tuple[int, str]:
        """The status and the text of an answer. Raises OSError, HTTPException: there was none."""
        connection = HTTPConnection(urlsplit(self.base).netloc, timeout=_TIMEOUT_SECONDS)
        try:
            connection.request(verb, path, headers=dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.read().decode("utf-8", "replace")
        finally:
            connection.close()


@dataclass
class Aws(Metadata):
    """EC2: an interruption of a spot instance, by IMDSv2."""

    notice_seconds: ClassVar = 120.0
    _token: str = field(default="", init=False)

    def notice(self) -> str:
        """The announced event, in words; empty if there is none."""
        status, text = self._ask()
        if status == 401:  # the token has expired, or there is none yet
            headers = {"X-aws-ec2-metadata-token-ttl-seconds": "21600"}
            _, self._token = self.ask("/latest/api/token", headers, "PUT")
            status, text = self._ask()
        if status == 404:
            return ""
        action = json.loads(_checked(status, text))
        return f"EC2 will {action['action']} this instance at {action['time']}"

    def _ask(self) -> tuple[int, str]:
        headers = {"X-aws-ec2-metadata-token": self._token}
        return self.ask("/latest/meta-data/spot/instance-action", headers)


class Gcp(Metadata):
    """Compute Engine: preemption, and maintenance that ends the VM."""

    notice_seconds: ClassVar = 30.0

    def notice(self) -> str:
        """The announced event, in words; empty if there is none."""
        if self._value("preempted") == "TRUE":
            return "Compute Engine preempts this instance"
        event = self._value("maintenance-event")
        return f"Compute Engine announces {event}" if event.startswith("TERMINATE") else ""

    def _value(self, name: str) -> str:
        path = f"/computeMetadata/v1/instance/{name}"
        return _checked(*self.ask(path, {"Metadata-Flavor": "Google"})).strip()


@dataclass
class Azure(Metadata):
    """Scheduled Events that end this host, and not only others of its scale set."""

    notice_seconds: ClassVar = 30.0
    _name: str = field(default="", init=False)

    def notice(self) -> str:
        """The announced event, in words; empty if there is none."""
        self._name = self._name or self._text("instance/compute/name?api-version=2021-02-01&format=text")
        events = json.loads(self._text("scheduledevents?api-version=2020-07-01"))["Events"]
        for event in events:
            if event["EventType"] in _AZURE_ENDS and self._name in event["Resources"]:
                when = event.get("NotBefore") or "once"
                return f"Azure announces {event['EventType']} of {self._name}, not before {when}"
        return ""

    def _text(self, path: str) -> str:
        return _checked(*self.ask(f"/metadata/{path}", {"Metadata": "true"}))


def metadata_of(cloud: str, environment: Mapping[str, str] = os.environ) -> Aws | Gcp | Azure:
    """The metadata service of `aws`, `gcp` or `azure`, at the address that the cloud's SDK uses.

    Raises:
        ConfigError: another cloud.
    """
    link_local = "http://169.254.169.254"
    if cloud == "aws":
        return Aws(environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", link_local))
    if cloud == "gcp":
        return Gcp(f"http://{environment.get('GCE_METADATA_HOST', 'metadata.google.internal')}")
    if cloud == "azure":
        return Azure(environment.get("AZURE_METADATA_ENDPOINT", link_local))
    allowed = "aws, gcp, azure, or none where notices come as SIGTERM only"
    raise ConfigError([f"notices: got {cloud!r}; allowed: {allowed}"])


@dataclass
class Watch:
    """Polls in a separate thread, until there is a preemption notice."""

    source: Aws | Gcp | Azure
    on_notice: Callable[[str], None]
    poll_seconds: float = POLL_SECONDS
    _has_warned: bool = field(default=False, init=False)

    def start(self) -> None:
        """Begin."""
        threading.Thread(target=self._run, name="cloud", daemon=True).start()

    def _run(self) -> None:
        pause = threading.Event()
        while not (text := self.ask()):
            pause.wait(self.poll_seconds)
        self.on_notice(text)

    def ask(self) -> str:
        """The notice, empty while there is none; a service that fails is reported once."""
        try:
            return self.source.notice()
        except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
            if not self._has_warned:
                log_line(
                    f"notices of {type(self.source).__name__} cannot be received: {type(error).__name__}:"
                    f" {error}; SIGTERM is still handled; set notices: none where there is no such service"
                )
            self._has_warned = True
            return ""


def _checked(status: int, text: str) -> str:
    if status != 200:
        raise ValueError(f"the metadata service answers {status}: {text.strip()[:100]}")
    return text
