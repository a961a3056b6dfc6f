"""What a project has of a stack is found by name, and a made-up name by its beginning."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.errors import TrainyardError
from infra.targets.gcp.account.find import Finder
from rehearsal.cloud import Resource, replacements
from rehearsal.gcp import Answers, Project
from rehearsal.gcp.places import address, places
from rehearsal.store import Kept, Store
from rehearsal.wire import UNKNOWN

PLACE = "example-training", "europe-west1"
BUCKET = "gcp:storage/bucket:Bucket"
RING = {"location": "europe-west1", "name": "training-keys-1a2b3c4"}


def made(folder: Path, token: str, name: str, inputs: Mapping[str, Any]) -> str:
    """Make a resource as a stand-in does; return its ID."""
    identity = Project(*PLACE).create(Resource(token, name, inputs)).id
    Store(folder).put(Kept(f"urn:pulumi:s::p::{token}::{name}", identity, dict(inputs), dict(inputs)))
    return identity


@pytest.fixture
def finder(tmp_path: Path) -> Finder:
    return Finder("training", *PLACE, Answers(tmp_path, *PLACE))


def test_a_made_up_name_is_found_by_its_beginning(tmp_path: Path, finder: Finder) -> None:
    announced = {**RING, "name": "training-keys-9999999"}
    assert finder.announced("gcp:kms/keyRing:KeyRing", "training-keys", announced) is None
    ring = made(tmp_path, "gcp:kms/keyRing:KeyRing", "training-keys", RING)
    made(tmp_path, "gcp:kms/keyRing:KeyRing", "training-keys-2", {**RING, "name": "training-keys-2-1a2b3c4"})
    found = finder.announced("gcp:kms/keyRing:KeyRing", "training-keys", announced)
    assert found == (ring, {"name": "training-keys-1a2b3c4"})
    key = {"keyRing": ring, "name": "training-data-key-1a2b3c4"}
    identity = made(tmp_path, "gcp:kms/cryptoKey:CryptoKey", "training-data-key", key)
    assert identity == f"{ring}/cryptoKeys/training-data-key-1a2b3c4"
    fresh = {**key, "name": "training-data-key-0000000"}
    sought = "gcp:kms/cryptoKey:CryptoKey", "training-data-key"
    assert finder.announced(*sought, fresh) == (identity, {"name": key["name"]})
    assert finder.announced(*sought, {**fresh, "keyRing": UNKNOWN}) is None


def test_two_of_one_made_up_name_are_told(tmp_path: Path, finder: Finder) -> None:
    for end in ("1a2b3c4", "5d6e7f8"):
        made(tmp_path, "gcp:kms/keyRing:KeyRing", end, {**RING, "name": f"training-keys-{end}"})
    with pytest.raises(TrainyardError, match="training-keys-1a2b3c4, training-keys-5d6e7f8"):
        finder.announced("gcp:kms/keyRing:KeyRing", "training-keys", RING)


def test_a_bucket_is_taken_with_the_stacks_label_alone(tmp_path: Path, finder: Finder) -> None:
    bucket = {"name": "checkpoints", "labels": {"trainyard-stack": "other"}}
    made(tmp_path, BUCKET, "training-bucket", bucket)
    assert finder.announced(BUCKET, "training-bucket", bucket) is None
    made(tmp_path, BUCKET, "training-bucket", {**bucket, "labels": {"trainyard-stack": "training"}})
    assert finder.announced(BUCKET, "training-bucket", bucket) == ("checkpoints", {})


def test_a_part_is_looked_for_in_its_whole(tmp_path: Path, finder: Finder) -> None:
    nat = {"router": "nat-1a2b3c4", "name": "training-nat-5d6e7f8"}
    token = "gcp:compute/routerNat:RouterNat"
    router = {"name": "nat-1a2b3c4", "region": "europe-west1"}
    made(tmp_path, "gcp:compute/router:Router", "training-nat", router)
    assert finder.find(token, "training-nat", nat) is None
    made(tmp_path, token, "training-nat", nat)
    fresh = {**nat, "name": "training-nat-0000000"}
    identity = "example-training/europe-west1/nat-1a2b3c4/training-nat-5d6e7f8"
    assert finder.announced(token, "training-nat", fresh) == (identity, {"name": nat["name"]})


def test_a_member_of_a_policy_is_found_by_its_role(tmp_path: Path, finder: Finder) -> None:
    token = "gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember"
    key = "projects/example-training/locations/europe-west1/keyRings/r/cryptoKeys/k"
    member = {"cryptoKeyId": key, "role": "roles/cloudkms.encrypter", "member": "serviceAccount:a@b"}
    assert finder.announced(token, "data-key-filestore", member) is None
    identity = made(tmp_path, token, "data-key-filestore", member)
    assert finder.announced(token, "data-key-filestore", member) == (identity, {})
    assert finder.announced(token, "data-key-filestore", {**member, "role": "roles/viewer"}) is None
    assert finder.announced(token, "data-key-filestore", {**member, "member": "user:a@b"}) is None


def test_folders_are_spelled_for_a_url() -> None:
    url = address("gcp:storage/folder:Folder", {"bucket": "b", "name": "checkpoints/research/"})
    assert url == "https://storage.googleapis.com/storage/v1/b/b/folders/checkpoints%2Fresearch%2F"


def test_every_type_of_the_stacks_has_a_place() -> None:
    assert {token for token in replacements() if token.startswith("gcp:")} <= places().keys()
