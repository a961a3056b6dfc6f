"""Marks the objects of superseded checkpoints in S3, Google Cloud Storage and Azure, so that the bucket's
lifecycle rules delete them.

| store | mark | rule (infra/targets) |
|---|---|---|
| S3 | the tag `trainyard.dev/superseded=true` | objects with the tag, some days after they were written |
| Google Cloud Storage | a custom time: its rules know no tags | `daysSinceCustomTime`, days after the mark |
| Azure Blob Storage | the index tag `trainyard.dev/superseded=true` | blobs with the tag, as in S3 |
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

from trainyard_train.config_base import extra
from trainyard_train.elasticity.instance_metadata import metadata_of

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import TagTypeDef

SUPERSEDED: Final[TagTypeDef] = {"Key": "trainyard.dev/superseded", "Value": "true"}
"""The tag by which a lifecycle rule of the bucket finds the objects that it may delete."""
_TOKEN_PATH: Final = "/computeMetadata/v1/instance/service-accounts/default/token"  # noqa: S105 -- a path
_BLOB_API: Final = "2021-12-02"
"""Version of Blob Storage's REST API; tags came with 2019-12-12."""
_BLOB_TAGS: Final = (
    f"<Tags><TagSet><Tag><Key>{SUPERSEDED['Key']}</Key><Value>{SUPERSEDED['Value']}</Value></Tag></TagSet></Tags>"
).encode()
_WORKLOAD_IDENTITY: Final = ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE")
"""Variables that AKS sets in pods with a workload identity."""
_ATTEMPTS: Final = 3
"""Maximum number of attempts of one request to S3."""
_EARLY_SECONDS: Final = 60.0
"""Seconds before its expiry at which a token is renewed."""


class S3TagMarker:
    """S3, with whatever credentials boto3 finds."""

    def __init__(self, timeout_seconds: float) -> None:
        """Args: timeout_seconds: for one request with its retries."""
        with extra("stores"):
            import boto3  # obstore does not support tags
            from botocore.config import Config

        each = timeout_seconds / _ATTEMPTS
        settings = Config(
            connect_timeout=each,
            read_timeout=each,
            retries={"total_max_attempts": _ATTEMPTS, "mode": "standard"},
        )
        self._client = boto3.client("s3", config=settings)

    def mark(self, bucket: str, key: str) -> None:
        self._client.put_object_tagging(Bucket=bucket, Key=key, Tagging={"TagSet": [SUPERSEDED]})

    def unmark(self, bucket: str, key: str) -> None:
        self._client.put_object_tagging(Bucket=bucket, Key=key, Tagging={"TagSet": []})


@dataclass
class _Token:
    """An OAuth 2.0 access token, cached until shortly before it expires."""

    _text: str = ""
    _until: float = 0.0

    def fresh(self, request: Callable[[], Mapping[str, Any]]) -> str:
        """Return a valid token; `request` returns the issuer's response."""
        if time.monotonic() >= self._until:
            answer = request()
            self._text = answer["access_token"]
            self._until = time.monotonic() + float(answer["expires_in"]) - _EARLY_SECONDS
        return self._text


@dataclass
class GcsCustomTimeMarker:
    """Google Cloud Storage's JSON API, as the pod's identity (Workload Identity, by the metadata service).

    STORAGE_EMULATOR_HOST and GCE_METADATA_HOST replace the hosts, as in Google Cloud's client libraries.
    """

    timeout_seconds: float
    _token: _Token = field(default_factory=_Token, init=False)

    def mark(self, bucket: str, key: str) -> None:
        url = f"{self._url_of(bucket, key)}?fields=customTime"
        # A second mark would postpone expiry: a job that restarts each week would retain every checkpoint.
        if "customTime" not in self._ask("GET", url):
            self._ask("PATCH", url, {"customTime": datetime.now(timezone.utc).isoformat()})

    def unmark(self, bucket: str, key: str) -> None:
        # A custom time can be neither removed nor moved back, except by a rewrite within the store.
        url, part = self._url_of(bucket, key), ""
        rewrite = f"{url}/rewriteTo{url.partition('/storage/v1')[2]}"
        while True:
            answer = self._ask("POST", f"{rewrite}{part}", {"contentType": "application/octet-stream"})
            if answer.get("done", True):
                return
            part = f"?rewriteToken={quote(answer['rewriteToken'], safe='')}"

    def _url_of(self, bucket: str, key: str) -> str:
        base = os.environ.get("STORAGE_EMULATOR_HOST", "https://storage.googleapis.com")
        return f"{base}/storage/v1/b/{bucket}/o/{quote(key, safe='')}"

    def _ask(self, verb: str, url: str, body: Mapping[str, str] | None = None) -> dict[str, Any]:
        headers = {
            "Authorization": f"Bearer {self._token.fresh(self._request_token)}",
            "Content-Type": "application/json",
        }
        data = json.dumps(body).encode() if body else None
        request = Request(url, data, headers, method=verb)  # noqa: S310 -- of this API alone
        return _request_json(request, self.timeout_seconds)

    def _request_token(self) -> Mapping[str, Any]:
        status, text = metadata_of("gcp").ask(_TOKEN_PATH, {"Metadata-Flavor": "Google"})
        if status != 200:
            raise PermissionError(f"the metadata service gives no token: {status} {text[:100]}")
        answer: dict[str, Any] = json.loads(text)
        return answer


@dataclass
class AzureTagMarker:
    """Azure's Set Blob Tags, as the pod's identity (Workload Identity, by the token in a file of the pod).

    AZURE_STORAGE_ACCOUNT_NAME is the account; AZURE_STORAGE_ENDPOINT replaces its URL, as in obstore.
    """

    timeout_seconds: float
    _token: _Token = field(default_factory=_Token, init=False)

    def mark(self, bucket: str, key: str) -> None:
        self._set_tags(bucket, key, _BLOB_TAGS)

    def unmark(self, bucket: str, key: str) -> None:
        self._set_tags(bucket, key, b"<Tags><TagSet/></Tags>")

    def _set_tags(self, bucket: str, key: str, tags: bytes) -> None:
        account = os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
        base = os.environ.get("AZURE_STORAGE_ENDPOINT", f"https://{account}.blob.core.windows.net")
        headers = {
            "Authorization": f"Bearer {self._token.fresh(self._request_token)}",
            "Content-Type": "application/xml; charset=UTF-8",
            "x-ms-version": _BLOB_API,
        }
        url = f"{base}/{bucket}/{quote(key)}?comp=tags"
        request = Request(url, tags, headers, method="PUT")  # noqa: S310 -- of this API alone
        with urlopen(request, timeout=self.timeout_seconds):  # noqa: S310
            pass

    def _request_token(self) -> Mapping[str, Any]:
        missing = [name for name in _WORKLOAD_IDENTITY if name not in os.environ]
        if missing:
            raise PermissionError(f"no {missing[0]}: is the pod labelled azure.workload.identity/use?")
        client, tenant, file = (os.environ[name] for name in _WORKLOAD_IDENTITY)
        asked = {
            "grant_type": "client_credentials",
            "scope": "https://storage.azure.com/.default",
            "client_id": client,
            "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
            "client_assertion": Path(file).read_text(),  # read each time: AKS replaces it within the hour
        }
        host = os.environ.get("AZURE_AUTHORITY_HOST", "https://login.microsoftonline.com").rstrip("/")
        request = Request(f"{host}/{tenant}/oauth2/v2.0/token", urlencode(asked).encode())  # noqa: S310
        return _request_json(request, self.timeout_seconds)


Marks = S3TagMarker | GcsCustomTimeMarker | AzureTagMarker
"""Marks objects of one kind of store, or takes the mark off: then the rule no longer applies to an object."""


def marks_of(scheme: str, timeout_seconds: float) -> Marks:
    """Return what marks objects of `s3`, `gs` or `az`. KeyError for any other scheme."""
    kinds: Mapping[str, Callable[[float], Marks]] = {
        "s3": S3TagMarker,
        "gs": GcsCustomTimeMarker,
        "az": AzureTagMarker,
    }
    return kinds[scheme](timeout_seconds)


def _request_json(request: Request, timeout_seconds: float) -> dict[str, Any]:
    with urlopen(request, timeout=timeout_seconds) as response:  # noqa: S310 -- an API's HTTPS address
        found: dict[str, Any] = json.load(response)
    return found
