"""Marking what is superseded, so that a rule of the bucket deletes it: each cloud's rules look for their own.

| store | mark | rule (infra/providers) |
|---|---|---|
| S3 | the tag `trainyard.dev/superseded=true` | objects with the tag, some days after they were written |
| Google Cloud Storage | a custom time: its rules know no tags | `daysSinceCustomTime`, days after the mark |
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote
from urllib.request import Request, urlopen

from training.clouds import metadata_of

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import TagTypeDef

SUPERSEDED: Final[TagTypeDef] = {"Key": "trainyard.dev/superseded", "Value": "true"}
"""The tag by which a rule of the bucket finds what it may delete."""
_TOKEN_PATH: Final = "/computeMetadata/v1/instance/service-accounts/default/token"  # noqa: S105 -- a path
_EARLY_SECONDS: Final = 60.0
"""A token is asked for anew so long before its end."""


class Marks(Protocol):
    """How objects of one kind of store are marked."""

    def mark(self, bucket: str, key: str) -> None:
        """Mark an object; one that is marked already stays as it is."""


def marks_of(scheme: str, timeout_seconds: float) -> Marks:
    """The marks of `s3` or `gs`."""
    return CustomTimes(timeout_seconds) if scheme == "gs" else Tags()


class Tags:
    """S3, with whatever credentials boto3 finds."""

    def __init__(self) -> None:
        import boto3  # fsspec and obstore do not speak of tags

        self._client = boto3.client("s3")

    def mark(self, bucket: str, key: str) -> None:
        self._client.put_object_tagging(Bucket=bucket, Key=key, Tagging={"TagSet": [SUPERSEDED]})


@dataclass
class CustomTimes:
    """Google Cloud Storage's JSON API, as the pod's identity (Workload Identity, by the metadata service).

    STORAGE_EMULATOR_HOST and GCE_METADATA_HOST lead elsewhere, as with Google's own clients.
    """

    timeout_seconds: float
    _token: str = field(default="", init=False)
    _until: float = field(default=0.0, init=False)

    def mark(self, bucket: str, key: str) -> None:
        base = os.environ.get("STORAGE_EMULATOR_HOST", "https://storage.googleapis.com")
        url = f"{base}/storage/v1/b/{bucket}/o/{quote(key, safe='')}?fields=customTime"
        # A second mark would move the end on: a job that starts again each week would keep all it ever wrote.
        if "customTime" not in self._ask("GET", url):
            self._ask("PATCH", url, {"customTime": datetime.now(UTC).isoformat()})

    def _ask(self, verb: str, url: str, body: Mapping[str, str] | None = None) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._bearer()}", "Content-Type": "application/json"}
        data = json.dumps(body).encode() if body else None
        request = Request(url, data, headers, method=verb)  # noqa: S310 -- of this API alone
        with urlopen(request, timeout=self.timeout_seconds) as answer:  # noqa: S310
            found: dict[str, Any] = json.load(answer)
        return found

    def _bearer(self) -> str:
        if time.monotonic() >= self._until:
            status, text = metadata_of("gcp").metadata.ask(_TOKEN_PATH, {"Metadata-Flavor": "Google"})
            if status != 200:
                raise PermissionError(f"the metadata service gives no token: {status} {text[:100]}")
            told = json.loads(text)
            self._token = told["access_token"]
            self._until = time.monotonic() + float(told["expires_in"]) - _EARLY_SECONDS
        return self._token
