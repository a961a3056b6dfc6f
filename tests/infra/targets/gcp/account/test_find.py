"""Finds a stack's resources in a Google Cloud project: by name, or by the prefix of a generated name."""

import importlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.errors import TrainyardError
from infra.targets.finder import UNKNOWN, lookups
from infra.targets.gcp.account.find import GcpFinder, address
from rehearsal import sdk
from rehearsal.cloud import RequestedResource
from rehearsal.gcp.project import GcpAnswers, GcpProject
from rehearsal.store import ResourceStore, StoredResource
from rehearsal.tables import table

PLACE = "example-training", "europe-west1"
BUCKET = "gcp:storage/bucket:Bucket"
RING = {"location": "europe-west1", "name": "training-keys-1a2b3c4"}


def made(folder: Path, token: str, name: str, inputs: Mapping[str, Any]) -> str:
    """Create a resource in a fake; return its ID."""
    identity = GcpProject(*PLACE).create(RequestedResource(token, name, inputs)).id
    ResourceStore(folder).put(
        StoredResource(f"urn:pulumi:s::p::{token}::{name}", identity, dict(inputs), dict(inputs))
    )
    return identity


@pytest.fixture
def finder(tmp_path: Path) -> GcpFinder:
    return GcpFinder("training", *PLACE, GcpAnswers(tmp_path, *PLACE))


def test_a_generated_name_is_found_by_its_prefix(tmp_path: Path, finder: GcpFinder) -> None:
    announced = {**RING, "name": "training-keys-9999999"}
    assert finder.find_announced("gcp:kms/keyRing:KeyRing", "training-keys", announced) is None
    ring = made(tmp_path, "gcp:kms/keyRing:KeyRing", "training-keys", RING)
    made(tmp_path, "gcp:kms/keyRing:KeyRing", "training-keys-2", {**RING, "name": "training-keys-2-1a2b3c4"})
    found = finder.find_announced("gcp:kms/keyRing:KeyRing", "training-keys", announced)
    assert found == (ring, {"name": "training-keys-1a2b3c4"})
    key = {"keyRing": ring, "name": "training-data-key-1a2b3c4"}
    identity = made(tmp_path, "gcp:kms/cryptoKey:CryptoKey", "training-data-key", key)
    assert identity == f"{ring}/cryptoKeys/training-data-key-1a2b3c4"
    fresh = {**key, "name": "training-data-key-0000000"}
    sought = "gcp:kms/cryptoKey:CryptoKey", "training-data-key"
    assert finder.find_announced(*sought, fresh) == (identity, {"name": key["name"]})
    assert finder.find_announced(*sought, {**fresh, "keyRing": UNKNOWN}) is None


def test_two_resources_with_the_same_prefix_are_reported(tmp_path: Path, finder: GcpFinder) -> None:
    for end in ("1a2b3c4", "5d6e7f8"):
        made(tmp_path, "gcp:kms/keyRing:KeyRing", end, {**RING, "name": f"training-keys-{end}"})
    with pytest.raises(TrainyardError, match="training-keys-1a2b3c4, training-keys-5d6e7f8"):
        finder.find_announced("gcp:kms/keyRing:KeyRing", "training-keys", RING)


def test_a_bucket_is_adopted_only_with_the_stacks_label(tmp_path: Path, finder: GcpFinder) -> None:
    bucket = {"name": "checkpoints", "labels": {"trainyard-stack": "other"}}
    made(tmp_path, BUCKET, "training-bucket", bucket)
    assert finder.find_announced(BUCKET, "training-bucket", bucket) is None
    made(tmp_path, BUCKET, "training-bucket", {**bucket, "labels": {"trainyard-stack": "training"}})
    assert finder.find_announced(BUCKET, "training-bucket", bucket) == ("checkpoints", {})


def test_a_part_is_found_in_its_parent_resource(tmp_path: Path, finder: GcpFinder) -> None:
    nat = {"router": "nat-1a2b3c4", "name": "training-nat-5d6e7f8"}
    token = "gcp:compute/routerNat:RouterNat"
    router = {"name": "nat-1a2b3c4", "region": "europe-west1"}
    made(tmp_path, "gcp:compute/router:Router", "training-nat", router)
    assert finder.find_begun(token, "training-nat", nat) is None
    made(tmp_path, token, "training-nat", nat)
    fresh = {**nat, "name": "training-nat-0000000"}
    identity = "example-training/europe-west1/nat-1a2b3c4/training-nat-5d6e7f8"
    assert finder.find_announced(token, "training-nat", fresh) == (identity, {"name": nat["name"]})


def test_a_member_of_a_policy_is_found_by_its_role(tmp_path: Path, finder: GcpFinder) -> None:
    token = "gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember"
    key = "projects/example-training/locations/europe-west1/keyRings/r/cryptoKeys/k"
    member = {"cryptoKeyId": key, "role": "roles/cloudkms.encrypter", "member": "serviceAccount:a@b"}
    assert finder.find_announced(token, "data-key-filestore", member) is None
    identity = made(tmp_path, token, "data-key-filestore", member)
    assert finder.find_announced(token, "data-key-filestore", member) == (identity, {})
    assert finder.find_announced(token, "data-key-filestore", {**member, "role": "roles/viewer"}) is None
    assert finder.find_announced(token, "data-key-filestore", {**member, "member": "user:a@b"}) is None


def test_folder_names_are_quoted_in_urls() -> None:
    url = address("gcp:storage/folder:Folder", {"bucket": "b", "name": "checkpoints/research/"})
    assert url == "https://storage.googleapis.com/storage/v1/b/b/folders/checkpoints%2Fresearch%2F"


LOOKUPS = lookups("infra.targets.gcp.account")
UNDOCUMENTED = {
    "gcp:container/nodePool:NodePool",
    "gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember",
    "gcp:projects/iAMMember:IAMMember",
    "gcp:serviceaccount/account:Account",
    "gcp:storage/bucketIAMMember:BucketIAMMember",
    "gcp:storage/managedFolderIamMember:ManagedFolderIamMember",
}
"""Types whose pages in the SDK have no whole ID."""


def test_every_type_of_the_stacks_can_be_looked_up() -> None:
    assert table("rehearsal.gcp", "replacements").keys() <= LOOKUPS.keys()


@pytest.mark.parametrize("token", sorted(LOOKUPS.keys() - UNDOCUMENTED))
def test_an_id_has_the_form_that_the_sdk_documents(token: str) -> None:
    module = sdk.resource_of(token).__module__
    source = Path(importlib.import_module(module).__file__ or "").read_text()
    documented = {_form(each) for each in re.findall(r"\$ pulumi import \S+ \S+ (\S+)", source)}
    assert _form(LOOKUPS[token]["id"]) in documented


def _form(identity: str) -> str:
    return re.sub(r"\{+[^}]+\}+", "{}", identity)


def test_a_finder_with_a_wrong_address_finds_nothing(
    tmp_path: Path, finder: GcpFinder, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = "gcp:kms/keyRing:KeyRing"
    made(tmp_path, token, "training-keys", RING)
    assert finder.find_begun(token, "training-keys", RING)
    wrong = {**LOOKUPS[token], "at": "https://kms.googleapis.com/v1/{id}"}
    monkeypatch.setitem(LOOKUPS, token, wrong)
    assert finder.find_begun(token, "training-keys", RING) is None
