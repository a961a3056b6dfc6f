"""Creates the engine's state backend on Google Cloud: a versioned bucket and a KMS key.

A repeated call corrects the settings of an existing bucket.

The engine overwrites its state in place, which a locked retention policy would refuse. Former versions and
deleted objects are retained instead, and the engine's own lock prevents concurrent runs.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from infra.clients.gcp import Answer, GcpClient
from infra.errors import InputError, Problem
from infra.targets.backend import BackendSetup, StateLocation
from infra.targets.gcp.stackfile.target import GcpSpec

STORAGE = "https://storage.googleapis.com/storage/v1"
KMS = "https://cloudkms.googleapis.com/v1"
RING = "trainyard-state"
ROTATION_DAYS = 90
DELETED_DAYS = 30
NONCURRENT_DAYS = 365
_USE = "roles/cloudkms.cryptoKeyEncrypterDecrypter"


def make(location: StateLocation, spec: GcpSpec, gcp: GcpClient) -> BackendSetup:
    """Create key and bucket, or correct existing ones.

    Raises InputError for a bucket of someone else or in another location, GcpRefusedError for what the API
    refuses.
    """
    key = _key(location, spec.project, gcp)
    _let_storage_use(key, spec.project, gcp)
    _bucket(location, spec, key, gcp)
    return BackendSetup(
        url=f"gs://{location.bucket}",
        secrets_provider=f"gcpkms://{key}",
        rights={f"gs://{location.bucket}": ["roles/storage.objectAdmin"], key: [_USE]},
    )


def _key(location: StateLocation, project: str, gcp: GcpClient) -> str:
    ring = f"projects/{project}/locations/{location.region}/keyRings/{RING}"
    if gcp.find(f"{KMS}/{ring}") is None:
        gcp.ask("POST", f"{KMS}/{ring.rpartition('/')[0]}", {}, keyRingId=RING)
    key = f"{ring}/cryptoKeys/{location.bucket}"
    if gcp.find(f"{KMS}/{key}") is None:
        body = {"purpose": "ENCRYPT_DECRYPT", "labels": dict(location.tags), **_rotation()}
        gcp.ask("POST", f"{KMS}/{ring}/cryptoKeys", body, cryptoKeyId=location.bucket)
    return key


def _rotation() -> dict[str, str]:
    first = datetime.now(UTC) + timedelta(days=ROTATION_DAYS)
    return {"rotationPeriod": f"{ROTATION_DAYS * 86400}s", "nextRotationTime": first.isoformat()}


def _let_storage_use(key: str, project: str, gcp: GcpClient) -> None:
    """Let Cloud Storage's service agent use the key; the rest of the key's policy does not change."""
    agent = gcp.ask("GET", f"{STORAGE}/projects/{project}/serviceAccount")["email_address"]
    member = f"serviceAccount:{agent}"
    policy = gcp.ask("GET", f"{KMS}/{key}:getIamPolicy")
    bindings: list[dict[str, Any]] = policy.setdefault("bindings", [])
    if not any(each["role"] == _USE and member in each["members"] for each in bindings):
        bindings.append({"role": _USE, "members": [member]})
        gcp.ask("POST", f"{KMS}/{key}:setIamPolicy", {"policy": policy})


def _bucket(location: StateLocation, spec: GcpSpec, key: str, gcp: GcpClient) -> None:
    there = gcp.find(f"{STORAGE}/b/{location.bucket}")
    if there is None:
        body = {"name": location.bucket, "location": location.region, **_settings(location, key)}
        gcp.ask("POST", f"{STORAGE}/b", body, project=spec.project)
        return
    _check(location, spec, there)
    gcp.ask("PATCH", f"{STORAGE}/b/{location.bucket}", _settings(location, key))


def _check(location: StateLocation, spec: GcpSpec, there: Answer) -> None:
    if there["projectNumber"] != spec.project_number:
        got, fix = f"{location.bucket} is of project {there['projectNumber']}", "choose another name"
        raise InputError([Problem("bucket", got, spec.project_number, fix)])
    if there["location"].lower() != location.region:
        fix = "choose another name, or set the region in which it is"
        got = f"{location.bucket} is in {there['location'].lower()}"
        raise InputError([Problem("bucket", got, location.region, fix)])


def _settings(location: StateLocation, key: str) -> dict[str, Any]:
    """Return the bucket's settings. The API that the engine uses (JSON) accepts TLS only, in any case."""
    outdated = {"action": {"type": "Delete"}, "condition": {"daysSinceNoncurrentTime": NONCURRENT_DAYS}}
    return {
        "storageClass": "STANDARD",
        "versioning": {"enabled": True},
        "softDeletePolicy": {"retentionDurationSeconds": str(DELETED_DAYS * 86400)},
        "iamConfiguration": {
            "uniformBucketLevelAccess": {"enabled": True},
            "publicAccessPrevention": "enforced",
        },
        "encryption": {"defaultKmsKeyName": key},
        "lifecycle": {"rule": [outdated]},
        "labels": dict(location.tags),
    }
