"""The backend of a state on AWS and Google Cloud: private, versioned, encrypted, within the residency."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from infra.clients.gcp import GcpClient, GcpRefusedError
from infra.errors import InputError
from infra.stackfile import load
from infra.targets.aws.account import backend as aws
from infra.targets.backend import StateLocation
from infra.targets.gcp.account import backend as gcp
from infra.targets.gcp.stackfile.target import GcpSpec
from policies.config import Residency
from rehearsal.aws.account import ACCOUNT, MotoAccount
from rehearsal.aws.models import client
from tests.infra.plan import stack_file
from trainyard.stack.state_bucket import check_residency, residency

pytestmark = pytest.mark.clouds

REGION = "us-east-2"
LOCATION = StateLocation("example-state", REGION, {"owner": "ml-platform"})


@pytest.fixture(scope="module")
def account() -> Iterator[MotoAccount]:
    with MotoAccount(REGION) as account:
        yield account


def of(service: str) -> Any:
    return client(service, REGION)


@pytest.fixture(scope="module")
def s3(account: MotoAccount) -> Any:
    aws.make(LOCATION, ACCOUNT, of)
    return of("s3")


def test_on_aws_the_state_is_versioned_locked_and_encrypted_by_a_separate_key(s3: Any) -> None:
    assert s3.get_bucket_versioning(Bucket=LOCATION.bucket)["Status"] == "Enabled"
    lock = s3.get_object_lock_configuration(Bucket=LOCATION.bucket)["ObjectLockConfiguration"]
    assert lock["Rule"]["DefaultRetention"].items() >= {"Mode": "GOVERNANCE", "Days": aws.LOCKED_DAYS}.items()
    (rule,) = s3.get_bucket_encryption(Bucket=LOCATION.bucket)["ServerSideEncryptionConfiguration"]["Rules"]
    key = of("kms").describe_key(KeyId="alias/example-state")["KeyMetadata"]
    assert rule["ApplyServerSideEncryptionByDefault"]["KMSMasterKeyID"] == key["Arn"]
    assert of("kms").get_key_rotation_status(KeyId=key["KeyId"])["KeyRotationEnabled"]


def test_on_aws_other_accounts_and_calls_without_tls_are_refused(s3: Any) -> None:
    blocked = s3.get_public_access_block(Bucket=LOCATION.bucket)["PublicAccessBlockConfiguration"]
    assert set(blocked.values()) == {True}
    assert len(blocked) == 4
    policy = json.loads(s3.get_bucket_policy(Bucket=LOCATION.bucket)["Policy"])
    conditions = [each["Condition"] for each in policy["Statement"] if each["Effect"] == "Deny"]
    assert {"Bool": {"aws:SecureTransport": "false"}} in conditions
    assert {"StringNotEquals": {"aws:PrincipalAccount": ACCOUNT}} in conditions


def test_on_aws_a_second_run_creates_nothing_and_corrects_changes(s3: Any) -> None:
    keys = of("kms").list_keys()["Keys"]
    s3.put_bucket_policy(Bucket=LOCATION.bucket, Policy='{"Version": "2012-10-17", "Statement": []}')
    made = aws.make(LOCATION, ACCOUNT, of)
    assert of("kms").list_keys()["Keys"] == keys
    assert "SecureTransport" in s3.get_bucket_policy(Bucket=LOCATION.bucket)["Policy"]
    assert made.url == "s3://example-state?region=us-east-2&awssdk=v2"
    assert made.secrets_provider == "awskms://alias/example-state?region=us-east-2&awssdk=v2"


def test_rights_on_aws_are_limited_to_the_bucket_and_the_key(s3: Any) -> None:
    statements = aws.make(LOCATION, ACCOUNT, of).rights["Statement"]
    assert all("*" not in action for each in statements for action in each["Action"])
    assert {each["Resource"].partition(":key/")[0] for each in statements} == {
        "arn:aws:s3:::example-state",
        "arn:aws:s3:::example-state/*",
        f"arn:aws:kms:{REGION}:{ACCOUNT}",
    }


def test_a_bucket_in_another_region_and_another_account_are_refused(s3: Any) -> None:
    away = {"LocationConstraint": "eu-west-1"}
    client("s3", "eu-west-1").create_bucket(Bucket="far", CreateBucketConfiguration=away)
    with pytest.raises(InputError, match="far is in eu-west-1"):
        aws.make(StateLocation("far", REGION, {}), ACCOUNT, of)
    with pytest.raises(InputError, match="999999999999"):
        aws.make(LOCATION, "999999999999", of)


@pytest.mark.parametrize(
    ("region", "allowed", "message"),
    [
        ("us-east-2", Residency(stack=("eu-*",)), "got:     us-east-2"),
        ("eu-central-2", Residency(stack=("in:eu",)), "eu-central-2"),
        ("eu-west-1", Residency(stack=("eu-*",), organisation=("eu-central-1",)), "organisation"),
        ("us-east-2", Residency(), "trainyard:residency"),
    ],
)
def test_a_region_outside_of_the_residency_is_refused(region: str, allowed: Residency, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_residency(region, allowed)


def test_residency_is_the_stacks_and_the_organisations(tmp_path: Path) -> None:
    organisation = tmp_path / "organisation.json"
    organisation.write_text('{"residency-declared": {"allowed": ["us-*"]}}')
    found = residency(stack_file("aws"), organisation)
    assert found == Residency(organisation=("us-*",), stack=("us-east-2",))
    check_residency("us-east-2", found)


@pytest.mark.parametrize("text", ["{", "[]", '{"residency-declared": {"allowed": ["in:nowhere"]}}'])
def test_a_wrong_residency_of_the_organisation_is_refused(text: str, tmp_path: Path) -> None:
    organisation = tmp_path / "organisation.json"
    organisation.write_text(text)
    with pytest.raises(InputError, match=r"organisation\.json"):
        residency(stack_file("aws"), organisation)


def test_a_wrong_residency_of_the_stack_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.mine.yaml"
    file.write_text("config: {trainyard:residency: [eu-*]}")
    with pytest.raises(InputError, match=r"trainyard:residency: got \['eu-\*'\]"):
        residency(file, None)


class FakeStateApis:
    """A fake of Google Cloud's storage and key APIs, for the requests that create a backend."""

    def __init__(self) -> None:
        self.things: dict[str, dict[str, Any]] = {}
        self.changed: list[str] = []

    def answer(self, request: httpx.Request) -> httpx.Response:
        path, body = request.url.path, json.loads(request.content or b"{}")
        if request.method == "GET":
            if path.endswith("/serviceAccount"):
                return httpx.Response(200, json={"email_address": "storage@google"})
            found = self.things.get(path)
            if found is None and not path.endswith(":getIamPolicy"):
                return httpx.Response(404, json={"error": {"message": "not found"}})
            return httpx.Response(200, json=found or {})
        self.changed.append(f"{request.method} {path}")
        if path.endswith(":setIamPolicy"):
            self.things[path.replace(":set", ":get")] = body["policy"]
        elif request.method == "PATCH":
            self.things[path] |= body
        else:
            name = (
                body.get("name") or request.url.params.get("keyRingId") or request.url.params["cryptoKeyId"]
            )
            number = {"projectNumber": "123456789012"}
            self.things[f"{path}/{name}"] = {**number, **body, "location": body.get("location", "").upper()}
        return httpx.Response(200, json={})


@pytest.fixture
def cloud() -> FakeStateApis:
    return FakeStateApis()


@pytest.fixture
def spec() -> GcpSpec:
    spec = load(stack_file("gcp")).target
    assert isinstance(spec, GcpSpec)
    return spec


def asked(cloud: FakeStateApis) -> GcpClient:
    return GcpClient("token", httpx.MockTransport(cloud.answer))


def test_on_gcp_the_state_is_versioned_private_and_has_its_key(cloud: FakeStateApis, spec: GcpSpec) -> None:
    location = StateLocation("example-state", "europe-west1", {"owner": "ml-platform"})
    made = gcp.make(location, spec, asked(cloud))
    bucket = cloud.things["/storage/v1/b/example-state"]
    assert bucket["versioning"] == {"enabled": True}
    assert bucket["iamConfiguration"]["publicAccessPrevention"] == "enforced"
    assert bucket["location"] == "EUROPE-WEST1"
    key = bucket["encryption"]["defaultKmsKeyName"]
    assert made.secrets_provider == f"gcpkms://{key}"
    (binding,) = cloud.things[f"/v1/{key}:getIamPolicy"]["bindings"]
    assert binding["members"] == ["serviceAccount:storage@google"]
    cloud.changed.clear()
    assert gcp.make(location, spec, asked(cloud)) == made
    assert cloud.changed == ["PATCH /storage/v1/b/example-state"]


def test_a_bucket_of_another_project_or_region_is_refused_on_gcp(cloud: FakeStateApis, spec: GcpSpec) -> None:
    there = {"projectNumber": "1", "location": "US"}
    cloud.things["/storage/v1/b/example-state"] = there
    location = StateLocation("example-state", "europe-west1", {})
    with pytest.raises(InputError, match="of project 1"):
        gcp.make(location, spec, asked(cloud))
    there["projectNumber"] = spec.project_number
    with pytest.raises(InputError, match="is in us"):
        gcp.make(location, spec, asked(cloud))


def test_a_refusal_of_gcp_is_reported_with_its_message() -> None:
    answer = httpx.Response(403, json={"error": {"message": "no right to look"}})
    with pytest.raises(GcpRefusedError, match="no right to look"):
        GcpClient("token", httpx.MockTransport(lambda _: answer)).ask(
            "GET", "https://storage.googleapis.com/x"
        )
