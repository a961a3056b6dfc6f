"""A superseded checkpoint gets what the bucket's rule looks for; a local server is Google's API."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

from infra.artifacts import ROOT
from tests.training.test_object_store import FILES, save
from training.checkpoint import Retention
from training.object_store import ObjectStore, StoreError

TOKEN = "/computeMetadata/v1/instance/service-accounts/default/token"
OBJECTS = "/storage/v1/b/bucket/o/"


class Google:
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


class Bucket(DirFileSystem):  # type: ignore[misc]
    """A folder that is reached as a bucket of Google's."""

    protocol = "gs"


@pytest.fixture
def google(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Google]:
    there = Google(tmp_path)

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, told = there.answer(self.command, self.path, self.headers, body)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(told).encode())

        do_GET = do_PATCH = _answer  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    place = f"127.0.0.1:{server.server_address[1]}"
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{place}")
    monkeypatch.setenv("GCE_METADATA_HOST", place)
    yield there
    server.shutdown()


def store(google: Google, **retention: Any) -> ObjectStore:
    files = Bucket(path=str(google.folder), fs=LocalFileSystem(auto_mkdir=True))
    return ObjectStore("gs://bucket/runs/7", Retention(last=1, tag=True, **retention), 5, files=files)


def test_what_is_superseded_gets_a_custom_time_and_stays_until_the_rule_deletes_it(google: Google) -> None:
    kept = store(google)
    for step in (1, 2, 3):
        save(kept, step)
    assert kept.committed() == [3, 2, 1]
    marked = {name.split("/")[2] for name in google.custom_times}
    assert marked == {"step-00000001", "step-00000002"}
    assert len(google.custom_times) == 2 * (len(FILES) + 1)
    now = datetime.now(UTC)
    assert all(now - timedelta(minutes=5) < time <= now for time in google.custom_times.values())
    assert google.tokens < len(google.custom_times), "a token serves many times"


def test_a_run_that_starts_again_does_not_move_the_end_of_what_is_marked(google: Google) -> None:
    first = store(google)
    save(first, 1)
    save(first, 2)
    before = dict(google.custom_times)
    save(store(google), 3)
    assert {name: google.custom_times[name] for name in before} == before
    assert len(google.patched) == len(set(google.patched))


def test_a_mark_that_is_refused_is_an_error_with_what_to_do(google: Google) -> None:
    kept = store(google)
    save(kept, 1)
    google.refused = 1
    with pytest.raises(StoreError, match=r"mark bucket/runs/7/step-00000001.*403"):
        save(kept, 2)


def test_the_buckets_rules_look_for_the_marks_that_the_trainer_sets() -> None:
    golden = ROOT / "tests" / "golden"
    assert "daysSinceCustomTime: 7" in (golden / "gcp.yaml").read_text()
    assert "key: trainyard.dev/superseded" in (golden / "aws.yaml").read_text()
