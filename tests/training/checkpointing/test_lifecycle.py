"""A superseded checkpoint gets the mark of the bucket's rule; fakes serve Google Cloud and Azure."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote
from xml.etree import ElementTree

import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

from tests.infra.golden_plans import golden_plan
from tests.training.checkpointing.test_object_store import FILES, save
from trainyard_train.checkpointing.checkpoint import Retention
from trainyard_train.checkpointing.object_store import ObjectStore, StoreError

TOKEN = "/computeMetadata/v1/instance/service-accounts/default/token"
OBJECTS = "/storage/v1/b/bucket/o/"


class GcpLifecycleApi:
    """Metadata service and JSON API of a bucket, whose objects are files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.custom_times: dict[str, datetime] = {}
        self.patched: list[str] = []
        self.tokens = 0
        self.refused = 0

    def answer(self, verb: str, path: str, headers: Any, body: bytes) -> tuple[int, dict[str, Any]]:
        if path == TOKEN:
            if headers.get("Metadata-Flavor") != "Google":
                return 403, {"error": "Metadata-Flavor: Google is missing"}
            self.tokens += 1
            return 200, {"access_token": "of-the-pod", "expires_in": 3599, "token_type": "Bearer"}
        if headers.get("Authorization") != "Bearer of-the-pod" or self.refused:
            return 403, {"error": {"message": "no storage.objects.update"}}
        assert path.startswith(OBJECTS), path
        name = unquote(path.removeprefix(OBJECTS).partition("?")[0])
        if not (self.folder / "bucket" / name).is_file():
            return 404, {"error": {"message": f"No such object: {name}"}}
        if verb == "PATCH":
            asked = datetime.fromisoformat(json.loads(body)["customTime"])
            if asked < self.custom_times.get(name, asked):
                return 400, {"error": {"message": "Custom time cannot be moved to an earlier date"}}
            self.custom_times[name] = asked
            self.patched.append(name)
        time = self.custom_times.get(name)
        return 200, {"customTime": time.isoformat()} if time else {}


class AzureLifecycleApi:
    """Entra's token endpoint, and the API of blobs, which are files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tags: dict[str, dict[str, str]] = {}
        self.asked: list[str] = []
        """The pod's credential of each request for a token."""
        self.refused = 0

    def answer(self, verb: str, path: str, headers: Any, body: bytes) -> tuple[int, dict[str, Any]]:
        if path == "/the-tenant/oauth2/v2.0/token":
            form = {key: value for key, (value,) in parse_qs(body.decode()).items()}
            assert form["client_id"] == "of-the-team"
            assert form["scope"] == "https://storage.azure.com/.default"
            self.asked.append(form["client_assertion"])
            return 200, {"access_token": "of-the-pod", "expires_in": 3599, "token_type": "Bearer"}
        if headers.get("Authorization") != "Bearer of-the-pod" or self.refused:
            return 403, {"error": "AuthorizationPermissionMismatch"}
        offset, _, query = path.partition("?")
        assert (verb, query) == ("PUT", "comp=tags"), path
        assert headers["x-ms-version"] >= "2019-12-12", "tags are no part of older versions"
        name = unquote(offset).removeprefix("/bucket/")
        if not (self.folder / "bucket" / name).is_file():
            return 404, {"error": "BlobNotFound"}
        tags = ElementTree.fromstring(body).findall("./TagSet/Tag")
        self.tags[name] = {str(tag.findtext("Key")): str(tag.findtext("Value")) for tag in tags}
        return 204, {}


class Container(DirFileSystem):  # type: ignore[misc]
    """A folder that is reached as a container of Azure's."""

    protocol = "az"


@pytest.fixture
def azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AzureLifecycleApi]:
    token = tmp_path / "token"
    token.write_text("the-first")
    there = AzureLifecycleApi(tmp_path)
    with served(there) as offset:
        variables = {
            "AZURE_STORAGE_ENDPOINT": f"http://{offset}",
            "AZURE_AUTHORITY_HOST": f"http://{offset}/",
            "AZURE_CLIENT_ID": "of-the-team",
            "AZURE_TENANT_ID": "the-tenant",
            "AZURE_FEDERATED_TOKEN_FILE": str(token),
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield there


class Bucket(DirFileSystem):  # type: ignore[misc]
    """A folder that is reached as a bucket of Google Cloud."""

    protocol = "gs"


@pytest.fixture
def gcp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GcpLifecycleApi]:
    there = GcpLifecycleApi(tmp_path)

    with served(there) as offset:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{offset}")
        monkeypatch.setenv("GCE_METADATA_HOST", offset)
        yield there


@contextmanager
def served(api: GcpLifecycleApi | AzureLifecycleApi) -> Iterator[str]:
    """Host and port at which an API answers."""

    class LifecycleHandler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, output = api.answer(self.command, self.path, self.headers, body)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(output).encode())

        do_GET = do_PATCH = do_POST = do_PUT = _answer  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), LifecycleHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()


def store(gcp: GcpLifecycleApi, **retention: Any) -> ObjectStore:
    files = Bucket(path=str(gcp.folder), fs=LocalFileSystem(auto_mkdir=True))
    return ObjectStore("gs://bucket/runs/7", Retention(last=1, tag=True, **retention), files=files)


def test_what_is_superseded_gets_a_custom_time_and_remains_until_the_rule_deletes_it(
    gcp: GcpLifecycleApi,
) -> None:
    checkpoints = store(gcp)
    for step in (1, 2, 3):
        save(checkpoints, step)
    assert checkpoints.committed() == [3, 2, 1]
    marked = {name.split("/")[2] for name in gcp.custom_times}
    assert marked == {"step-00000001", "step-00000002"}
    assert len(gcp.custom_times) == 2 * (len(FILES) + 1)
    now = datetime.now(UTC)
    assert all(now - timedelta(minutes=5) < time <= now for time in gcp.custom_times.values())
    assert gcp.tokens < len(gcp.custom_times), "a token serves many times"


def test_a_run_that_starts_again_does_not_move_the_end_of_what_is_marked(gcp: GcpLifecycleApi) -> None:
    first = store(gcp)
    save(first, 1)
    save(first, 2)
    before = dict(gcp.custom_times)
    save(store(gcp), 3)
    assert {name: gcp.custom_times[name] for name in before} == before
    assert len(gcp.patched) == len(set(gcp.patched))


def test_a_mark_that_is_refused_is_an_error_with_what_to_do(gcp: GcpLifecycleApi) -> None:
    checkpoints = store(gcp)
    save(checkpoints, 1)
    gcp.refused = 1
    with pytest.raises(StoreError, match=r"mark bucket/runs/7/step-00000001.*403"):
        save(checkpoints, 2)


def container(azure: AzureLifecycleApi) -> ObjectStore:
    files = Container(path=str(azure.folder), fs=LocalFileSystem(auto_mkdir=True))
    return ObjectStore("az://bucket/runs/7", Retention(last=1, tag=True), 5, files=files)


def test_what_is_superseded_in_azure_gets_an_index_tag(azure: AzureLifecycleApi) -> None:
    checkpoints = container(azure)
    for step in (1, 2, 3):
        save(checkpoints, step)
    assert checkpoints.committed() == [3, 2, 1]
    assert {name.split("/")[2] for name in azure.tags} == {"step-00000001", "step-00000002"}
    assert len(azure.tags) == 2 * (len(FILES) + 1)
    assert all(tags == {"trainyard.dev/superseded": "true"} for tags in azure.tags.values())


def test_a_token_of_the_pod_is_read_anew_as_aks_replaces_it(azure: AzureLifecycleApi) -> None:
    for step, word in enumerate(("the-first", "the-second")):
        (azure.folder / "token").write_text(word)
        checkpoints = container(azure)
        save(checkpoints, 2 * step)
        save(checkpoints, 2 * step + 1)
    assert set(azure.asked) == {"the-first", "the-second"}


def test_a_pod_without_an_identity_and_one_without_the_right_are_reported(
    azure: AzureLifecycleApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = container(azure)
    save(checkpoints, 1)
    azure.refused = 1
    with pytest.raises(StoreError, match=r"mark bucket/runs/7/step-00000001.*403"):
        save(checkpoints, 2)
    monkeypatch.delenv("AZURE_CLIENT_ID")
    with pytest.raises(StoreError, match=r"AZURE_CLIENT_ID.*workload\.identity/use.*check the credentials"):
        save(container(azure), 3)


def test_the_buckets_rules_look_for_the_marks_that_the_trainer_sets() -> None:
    assert '"name": "trainyard.dev/superseded"' in json.dumps(golden_plan("azure"))
    assert '"daysSinceCustomTime": 7' in json.dumps(golden_plan("gcp"))
    assert '"key": "trainyard.dev/superseded"' in json.dumps(golden_plan("aws"))
