"""Superseded checkpoints are marked for the bucket's lifecycle rule; fakes serve Google Cloud and Azure."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote
from xml.etree import ElementTree

import pytest
from obstore.store import LocalStore

from tests.infra.golden import golden_plan
from tests.servers import QuietHandler, serving
from tests.training.checkpointing.test_object_store import FILES, save
from trainyard_train.checkpointing.checkpoint import Retention
from trainyard_train.checkpointing.object_store import MARKED, ObjectStore, StoreError

TOKEN = "/computeMetadata/v1/instance/service-accounts/default/token"
OBJECTS = "/storage/v1/b/bucket/o/"


class GcpLifecycleApi:
    """A fake of the metadata service and of the JSON API of a bucket, whose objects are files of a folder."""

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
        if verb == "POST":
            name, _, target = name.partition("/rewriteTo")
            assert target == f"/b/bucket/o/{name}", "an object is rewritten onto itself"
            if "rewriteToken=a%2Fb" not in path:
                return 200, {"done": False, "rewriteToken": "a/b"}
            self.custom_times.pop(name, None)
            return 200, {"done": True}
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
    """A fake of Entra's token endpoint, and of the API of blobs, which are files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tags: dict[str, dict[str, str]] = {}
        self.asked: list[str] = []
        """The pod's credential in each request for a token."""
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
        blob, _, query = path.partition("?")
        assert (verb, query) == ("PUT", "comp=tags"), path
        assert headers["x-ms-version"] >= "2019-12-12", "tags are no part of older versions"
        name = unquote(blob).removeprefix("/bucket/")
        if not (self.folder / "bucket" / name).is_file():
            return 404, {"error": "BlobNotFound"}
        tags = ElementTree.fromstring(body).findall("./TagSet/Tag")
        self.tags[name] = {str(tag.findtext("Key")): str(tag.findtext("Value")) for tag in tags}
        return 204, {}


@pytest.fixture
def azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AzureLifecycleApi]:
    token = tmp_path / "token"
    token.write_text("the-first")
    api = AzureLifecycleApi(tmp_path)
    with served(api) as address:
        variables = {
            "AZURE_STORAGE_ENDPOINT": f"http://{address}",
            "AZURE_AUTHORITY_HOST": f"http://{address}/",
            "AZURE_CLIENT_ID": "of-the-team",
            "AZURE_TENANT_ID": "the-tenant",
            "AZURE_FEDERATED_TOKEN_FILE": str(token),
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield api


@pytest.fixture
def gcp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GcpLifecycleApi]:
    api = GcpLifecycleApi(tmp_path)
    with served(api) as address:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{address}")
        monkeypatch.setenv("GCE_METADATA_HOST", address)
        yield api


@contextmanager
def served(api: GcpLifecycleApi | AzureLifecycleApi) -> Iterator[str]:
    """Serve an API; yields its host and port."""

    class LifecycleHandler(QuietHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.respond(*api.answer(self.command, self.path, self.headers, body))

        do_GET = do_PATCH = do_POST = do_PUT = _answer

    with serving(LifecycleHandler) as server:
        yield f"127.0.0.1:{server.server_port}"


def store(gcp: GcpLifecycleApi, **retention: Any) -> ObjectStore:
    client = LocalStore(gcp.folder / "bucket/runs/7", mkdir=True)
    return ObjectStore("gs://bucket/runs/7", Retention(last=1, tag=True, **retention), client=client)


def test_a_superseded_checkpoint_gets_a_custom_time_and_remains_until_the_rule_deletes_it(
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
    checkpoints.spare([2])
    assert {name.split("/")[2] for name in gcp.custom_times} == {"step-00000001"}
    checkpoints.delete(MARKED)  # as of a step that was copied with its marks
    checkpoints.spare([1])
    assert gcp.custom_times
    checkpoints.spare([1], copied=True)
    assert not gcp.custom_times


def test_a_restarted_run_does_not_change_an_existing_custom_time(gcp: GcpLifecycleApi) -> None:
    first = store(gcp)
    save(first, 1)
    save(first, 2)
    before = dict(gcp.custom_times)
    save(store(gcp), 3)
    assert {name: gcp.custom_times[name] for name in before} == before
    assert len(gcp.patched) == len(set(gcp.patched))


def test_a_mark_that_is_refused_is_an_error_with_the_next_step(gcp: GcpLifecycleApi) -> None:
    checkpoints = store(gcp)
    save(checkpoints, 1)
    gcp.refused = 1
    with pytest.raises(StoreError, match=r"mark bucket/runs/7/step-00000001.*403"):
        save(checkpoints, 2)


def container(azure: AzureLifecycleApi) -> ObjectStore:
    client = LocalStore(azure.folder / "bucket/runs/7", mkdir=True)
    return ObjectStore("az://bucket/runs/7", Retention(last=1, tag=True), 5, client=client)


def test_a_superseded_checkpoint_in_azure_gets_an_index_tag(azure: AzureLifecycleApi) -> None:
    checkpoints = container(azure)
    for step in (1, 2, 3):
        save(checkpoints, step)
    assert checkpoints.committed() == [3, 2, 1]
    assert {name.split("/")[2] for name in azure.tags} == {"step-00000001", "step-00000002"}
    assert len(azure.tags) == 2 * (len(FILES) + 1)
    assert all(tags == {"trainyard.dev/superseded": "true"} for tags in azure.tags.values())
    checkpoints.spare([2])
    assert {name.split("/")[2] for name, tags in azure.tags.items() if tags} == {"step-00000001"}


def test_the_pods_token_is_read_again_after_aks_has_replaced_it(azure: AzureLifecycleApi) -> None:
    for step, token in enumerate(("the-first", "the-second")):
        (azure.folder / "token").write_text(token)
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


def rules_of(cloud: str) -> list[tuple[str, bool]]:
    """Prefix of each rule that deletes current objects, and whether it asks for the trainer's mark."""
    kinds = {
        "aws": "LifecycleConfiguration::",
        "gcp": "storage/bucket:Bucket::",
        "azure": "ManagementPolicy::",
    }
    (found,) = (each["inputs"] for urn, each in golden_plan(cloud).items() if kinds[cloud] in urn)
    if cloud == "aws":
        filters = [
            each["filter"].get("and", each["filter"]) for each in found["rules"] if "expiration" in each
        ]
        return [(each["prefix"], each.get("tags") == {TAG["name"]: TAG["value"]}) for each in filters]
    if cloud == "gcp":
        rules = [each["condition"] for each in found["lifecycleRules"] if each["action"]["type"] == "Delete"]
        return [("".join(each["matchesPrefixes"]), "daysSinceCustomTime" in each) for each in rules]
    rules = [each["definition"] for each in found["policy"]["rules"]]
    filters = [each["filters"] for each in rules if "baseBlob" in each["actions"]]
    container = "checkpoints/"
    return [
        ("".join(each["prefixMatch"]).removeprefix(container), TAG in each["blobIndexMatch"])
        for each in filters
    ]


TAG = {"name": "trainyard.dev/superseded", "op": "==", "value": "true"}


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
@pytest.mark.parametrize(
    ("key", "is_marked", "is_deleted"),
    [
        ("checkpoints/research/7/step-00000020/rank-00000.safetensors", True, True),
        ("checkpoints/research/7/step-00000040/rank-00000.safetensors", False, False),
        ("keep/best/rank-00000.safetensors", True, False),  # a copy has its tags and its custom time
        ("datasets/pile/shard-0001.bin", True, False),  # a transfer sets custom times
        ("filesystem/checkpoints/research/7/step-00000020/rank-00000.safetensors", False, False),
    ],
)
def test_the_buckets_rules_delete_marked_objects_of_checkpoints_and_nothing_else(
    cloud: str, key: str, is_marked: bool, is_deleted: bool
) -> None:
    rules = rules_of(cloud)
    assert len(rules) == 1
    assert is_deleted == any(key.startswith(prefix) and is_marked >= needs for prefix, needs in rules)
