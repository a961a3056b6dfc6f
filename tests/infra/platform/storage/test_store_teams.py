"""Teams on a real object store (versitygw), with the platform's users, bucket policy and keys."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import boto3
import httpx
import pytest
from botocore.exceptions import ClientError

from infra.common.bucket_policy import bucket_policy
from infra.platform.programs import program
from infra.platform.storage.store_teams import access_key, accounts, secret_key
from infra.stackfile import Stack, load
from tests.infra.plan import stack_file
from tests.processes import free_port, wait_for
from tests.tables import table
from tests.training.s3 import PROGRAM

ROOT = "the store's own secret key, which no team has"
BUCKET = "checkpoints"
Client = Any


@pytest.fixture(scope="module")
def stack() -> Stack:
    return load(stack_file("local"))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, stack: Stack) -> Iterator[str]:
    """Start a store with the configuration of the platform's pod; yields its address."""
    folder = tmp_path_factory.mktemp("store")
    for name in ("data", "iam", f"data/{BUCKET}"):
        (folder / name).mkdir()
    (folder / "iam" / "users.json").write_text(accounts(stack, ROOT))
    policy = bucket_policy(BUCKET, {team.name: access_key(team.name) for team in stack.teams})
    write = [sys.executable, "-c", program("write_bucket_policy.py"), str(folder / "data" / BUCKET), policy]
    subprocess.run(write, check=True)
    port = free_port()
    keys = {"ROOT_ACCESS_KEY": "root", "ROOT_SECRET_KEY": ROOT, "PATH": "/usr/bin:/bin"}
    arguments = ["--port", f"127.0.0.1:{port}", "--health", "/healthz", "--iam-dir", str(folder / "iam")]
    with subprocess.Popen([PROGRAM, *arguments, "posix", str(folder / "data")], env=keys) as server:
        try:
            address = f"http://127.0.0.1:{port}"
            wait_for(lambda: serves(address), lambda: "the store does not serve")
            yield address
        finally:
            server.terminate()


def serves(address: str) -> bool:
    try:
        return httpx.get(f"{address}/healthz", trust_env=False).is_success
    except httpx.TransportError:
        return False


def client(store: str, user: str, secret: str) -> Client:
    return boto3.client(
        "s3",
        endpoint_url=store,
        region_name="us-east-1",
        aws_access_key_id=user,
        aws_secret_access_key=secret,
    )


@pytest.fixture
def research(store: str, stack: Stack) -> Client:
    return client(store, access_key("research"), secret_key(stack, "research", ROOT))


def test_a_team_reads_writes_lists_tags_and_deletes_in_its_folder(research: Client) -> None:
    own = {"Bucket": BUCKET, "Key": "checkpoints/research/runs/1/step-1"}
    research.put_object(**own, Body=b"weights")
    upload = research.create_multipart_upload(**own)["UploadId"]
    research.abort_multipart_upload(**own, UploadId=upload)
    tags = {"TagSet": [{"Key": "trainyard.dev/superseded", "Value": "true"}]}
    research.put_object_tagging(**own, Tagging=tags)
    assert research.get_object_tagging(**own)["TagSet"] == tags["TagSet"]
    [found] = research.list_objects_v2(Bucket=BUCKET, Prefix="checkpoints/research/")["Contents"]
    assert (found["Key"], found["Size"]) == (own["Key"], 7)
    assert research.get_object(**own)["Body"].read() == b"weights"
    copy = {**own, "Key": "checkpoints/research/runs/2/step-1"}
    research.copy_object(**copy, CopySource=own)
    research.delete_object(**copy)
    research.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": own["Key"]}]})
    assert "Contents" not in research.list_objects_v2(Bucket=BUCKET, Prefix="checkpoints/research/")


ATTACKS: Mapping[str, Any] = table(__file__, "attacks")


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_of_others_or_of_the_bucket_is_a_teams(store: str, research: Client, attack: str) -> None:
    theirs = {"Bucket": BUCKET, "Key": "checkpoints/platform/step-1"}
    root = client(store, "root", ROOT)
    root.put_object(**theirs, Body=b"theirs")
    call, arguments = ATTACKS[attack]
    with pytest.raises(ClientError) as refused:
        getattr(research, call)(**{"Bucket": BUCKET, **arguments})
    assert refused.value.response["Error"]["Code"] == "AccessDenied"
    assert root.get_object(**theirs)["Body"].read() == b"theirs"


def test_a_bulk_deletion_deletes_only_the_teams_objects(store: str, research: Client) -> None:
    theirs = {"Bucket": BUCKET, "Key": "checkpoints/platform/step-1"}
    root = client(store, "root", ROOT)
    root.put_object(**theirs, Body=b"theirs")
    keys = (theirs["Key"], "checkpoints/research/../platform/step-1")
    answer = research.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": key} for key in keys]})
    assert [error["Code"] for error in answer["Errors"]] == ["AccessDenied", "AccessDenied"]
    assert root.get_object(**theirs)["Body"].read() == b"theirs"


def test_only_a_teams_newest_keys_open_the_store(store: str, stack: Stack) -> None:
    generation = stack.storage.object_store.model_copy(update={"key_generations": {"research": 2}})
    storage = stack.storage.model_copy(update={"object_store": generation})
    newer = secret_key(stack.model_copy(update={"storage": storage}), "research", ROOT)
    for secret in (ROOT, newer, secret_key(stack, "platform", ROOT)):
        with pytest.raises(ClientError) as refused:
            client(store, access_key("research"), secret).list_objects_v2(Bucket=BUCKET)
        assert refused.value.response["Error"]["Code"] == "SignatureDoesNotMatch"
