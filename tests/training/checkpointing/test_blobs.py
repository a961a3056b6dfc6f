"""Checkpoints in Google Cloud Storage and Azure, with the guarantees of those in S3; the clouds are fakes."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.training.checkpointing.blobs import ACCOUNT, AzureBlobApi, Blobs, GcpXmlApi, serve
from tests.training.checkpointing.test_object_store import FILES, newest_step, save, with_room
from tests.training.launch import events, sha256
from tests.training.test_trainer import NoticeAt, configure, train
from trainyard_train.checkpointing.checkpoint import MANIFEST, Retention, UnreadableError
from trainyard_train.checkpointing.object_store import ObjectStore, StoreError


@dataclass(frozen=True)
class BlobCloud:
    """A fake of one cloud's storage, and the store on it."""

    blobs: Blobs
    url: str


@pytest.fixture(params=["gs", "az"])
def cloud(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[BlobCloud]:
    kind = {"gs": GcpXmlApi, "az": AzureBlobApi}[request.param]
    with serve(kind) as (blobs, address):
        key = {"gcs_base_url": address, "disable_oauth": True}
        empty = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        for name, value in {
            "GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(key | empty),
            "STORAGE_EMULATOR_HOST": address,
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": address,
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
        # The client gives up soon on a request that fails.
        monkeypatch.setattr("trainyard_train.checkpointing.object_store._RETRIES", 1)
        yield BlobCloud(blobs, f"{request.param}://checkpoints/runs/7")


def test_the_order_of_requests_is_the_protocol_and_the_last_k_are_retained(cloud: BlobCloud) -> None:
    store = ObjectStore(cloud.url, Retention(last=1))
    save(store, 1)
    cloud.blobs.requests.clear()
    save(store, 2)
    puts = [path.rpartition("/")[2] for verb, path in cloud.blobs.requests if verb == "PUT"]
    assert puts == [*FILES, MANIFEST, "latest"]
    verbs = [verb for verb, _ in cloud.blobs.requests]
    first = min(index for index, verb in enumerate(verbs) if verb in {"DELETE", "POST"})
    assert max(index for index, verb in enumerate(verbs) if verb == "PUT") < first
    assert store.committed() == [2]
    assert newest_step(store) == 2
    assert not [name for name in cloud.blobs.objects if "step-00000001" in name]


def test_a_file_of_many_megabytes_is_written_in_parts_and_read_in_ranges(
    cloud: BlobCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("digests", "checkpoint"):
        monkeypatch.setattr(f"trainyard_train.checkpointing.{module}.BLOCK", 5 << 20)
    store, data = ObjectStore(cloud.url), with_room(os.urandom(1 << 20) * 12)
    save(store, 1, data)
    assert store.read(store.open(1).file(FILES[0]).path) == data
    assert not cloud.blobs.parts


@pytest.mark.parametrize(("status", "advice"), [(503, "overloaded or down"), (403, "check the credentials")])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_store_that_fails_at_any_put_loses_nothing_and_the_error_has_a_next_step(
    cloud: BlobCloud, status: int, advice: str, number: int
) -> None:
    save(ObjectStore(cloud.url), 1)
    puts: list[str] = []

    def failing(verb: str, path: str) -> int:
        puts.extend([path] if verb == "PUT" else [])
        return status if len(puts) >= number else 0

    cloud.blobs.rule = failing
    with pytest.raises(StoreError, match=advice):
        save(ObjectStore(cloud.url), 2)
    cloud.blobs.rule = lambda verb, path: 0
    assert newest_step(ObjectStore(cloud.url)) == 1


def test_a_preempted_run_resumes_from_the_store_to_the_bit_and_not_while_it_is_down(
    cloud: BlobCloud, tmp_path: Path
) -> None:
    train(configure(tmp_path / "whole"))
    checkpoint = {"every_steps": 5, "store": cloud.url}
    parted = configure(tmp_path / "parted", checkpoint=checkpoint)
    assert not train(parted, NoticeAt(7))
    cloud.blobs.rule = lambda verb, path: 503 if verb == "GET" else 0
    before = set(cloud.blobs.objects)
    with pytest.raises(UnreadableError, match="overloaded or down"):
        train(parted)
    cloud.blobs.rule = lambda verb, path: 0
    assert set(cloud.blobs.objects) == before
    assert train(parted)
    assert events(tmp_path / "parted", "resumed")[0]["step"] == 8
    assert sha256(tmp_path / "parted") == sha256(tmp_path / "whole")
