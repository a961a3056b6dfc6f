"""Datasets are staged complete and verified, or not at all: from folders, a web server and an S3 server."""

import functools
import json
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest

from tests.servers import QuietHandler, serving
from tests.training.s3 import BUCKET, Proxy, s3
from trainyard_train.checkpointing.object_store import ObjectStore
from trainyard_train.data import stage
from trainyard_train.data.stage import MARKER, StageError, describe, fetch, folder_name, main, verify

__all__ = ["s3"]

FILES = {"train/0.tar": b"zero" * 1000, "train/1.tar": b"one" * 3000, "index.json": b"{}"}
DIGEST = "sha256:ecf2ffb0f0ee6e9c2ba3a03ab9ebf4ab39f8a8b7dd9ea8b2e1a4a0fffffffff0"


@pytest.fixture
def source(tmp_path: Path) -> str:
    folder = tmp_path / "source"
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return f"{folder}/"


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != MARKER]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_a_folder_is_staged_under_its_digest_with_its_list(source: str, tmp_path: Path) -> None:
    digest = str(describe(source)["digest"])
    staged = fetch(source, tmp_path / "out", digest)
    assert staged == tmp_path / "out" / folder_name(digest)
    assert contents(staged) == FILES
    assert json.loads((staged / MARKER).read_text())["digest"] == digest
    assert verify(staged) == len(FILES)


def test_the_digest_is_that_of_sha256sums_output(source: str) -> None:
    import hashlib

    lines = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(FILES.items())]
    assert describe(source)["digest"] == f"sha256:{hashlib.sha256(''.join(lines).encode()).hexdigest()}"


def test_what_exists_is_not_copied_again(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = str(describe(source)["digest"])
    staged = fetch(source, tmp_path / "out", digest)
    monkeypatch.setattr(stage, "open_source", lambda source: pytest.fail("the source was asked"))
    assert fetch(source, tmp_path / "out", digest) == staged


def test_other_contents_are_refused_and_leave_nothing(source: str, tmp_path: Path) -> None:
    digest = str(describe(source)["digest"])
    (Path(source) / "index.json").write_bytes(b"[]")
    with pytest.raises(StageError, match=f"got sha256:.*; allowed: {digest}"):
        fetch(source, tmp_path / "out", digest)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_fetch_that_was_stopped_continues_and_deletes_partial_files(source: str, tmp_path: Path) -> None:
    digest = str(describe(source)["digest"])
    staging = tmp_path / "out" / f".{folder_name(digest)}"
    (staging / "train").mkdir(parents=True)
    (staging / "train/0.tar").write_bytes(FILES["train/0.tar"])
    (staging / "train/1.tar.7.half").write_bytes(b"half")
    whole = (staging / "train/0.tar").stat().st_ino
    staged = fetch(source, tmp_path / "out", digest)
    assert contents(staged) == FILES
    assert (staged / "train/0.tar").stat().st_ino == whole


def test_a_staged_file_of_the_right_size_with_wrong_content_is_found(source: str, tmp_path: Path) -> None:
    digest = str(describe(source)["digest"])
    staging = tmp_path / "out" / f".{folder_name(digest)}"
    staging.mkdir(parents=True)
    (staging / "index.json").write_bytes(b"[]")
    with pytest.raises(StageError, match="allowed: sha256:"):
        fetch(source, tmp_path / "out", digest)
    assert contents(fetch(source, tmp_path / "out", digest)) == FILES


def test_more_than_its_size_is_refused_before_a_byte_is_copied(source: str, tmp_path: Path) -> None:
    with pytest.raises(StageError, match="raise size_gib"):
        fetch(source, tmp_path / "out", DIGEST, max_bytes=100)
    assert not (tmp_path / "out").exists()


def test_damage_after_staging_is_named_file_by_file(source: str, tmp_path: Path) -> None:
    digest = str(describe(source)["digest"])
    staged = fetch(source, tmp_path / "out", digest)
    (staged / "train/0.tar").write_bytes(b"ZERO" * 1000)
    (staged / "index.json").unlink()
    with pytest.raises(StageError) as error:
        verify(staged)
    assert "index.json: missing" in str(error.value)
    assert "train/0.tar: sha256" in str(error.value)
    with pytest.raises(StageError, match=r"index\.json: missing"):
        fetch(source, tmp_path / "out", digest)


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", MARKER])
def test_names_outside_of_it_are_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class HostileSource:
        def listing(self) -> dict[str, stage.Listed]:
            return {name: stage.Listed(4)}

        def chunks(self, name: str) -> Iterator[bytes]:
            yield b"data"

    monkeypatch.setattr(stage, "open_source", lambda source: HostileSource())
    with pytest.raises(StageError, match="names below the source"):
        fetch("s3://hostile/", tmp_path / "out", DIGEST)


def test_a_bucket_is_staged_by_either_digest(s3: Proxy, tmp_path: Path) -> None:
    url = f"s3://{BUCKET}/data/either/"
    for name, content in FILES.items():
        ObjectStore(url).put(name, content)
    described = describe(url)
    assert described["files"] == len(FILES)
    for kind in ("digest", "etag"):
        staged = fetch(url, tmp_path / kind, str(described[kind]))
        assert contents(staged) == FILES


def test_a_store_whose_list_has_changed_is_refused_before_a_byte_is_copied(s3: Proxy, tmp_path: Path) -> None:
    url = f"s3://{BUCKET}/data/changed/"
    ObjectStore(url).put("a", b"before")
    etag = str(describe(url)["etag"])
    ObjectStore(url).put("a", b"after!")
    s3.reset()
    with pytest.raises(StageError, match="if the source has changed"):
        fetch(url, tmp_path, etag)
    assert not any("data/changed/a" in path and verb == "GET" for verb, path in s3.requests)


def test_one_object_is_a_dataset_of_one_file(s3: Proxy, tmp_path: Path) -> None:
    ObjectStore(f"s3://{BUCKET}/data/single").put("pile.jsonl", b'{"text": "a"}\n')
    url = f"s3://{BUCKET}/data/single/pile.jsonl"
    staged = fetch(url, tmp_path, str(describe(url)["digest"]))
    assert contents(staged) == {"pile.jsonl": b'{"text": "a"}\n'}


def test_a_fetch_continues_after_a_store_has_failed(s3: Proxy, tmp_path: Path) -> None:
    url = f"s3://{BUCKET}/data/fails/"
    for number in range(4):
        ObjectStore(url).put(f"{number}", bytes([number]) * 100)
    digest = str(describe(url)["digest"])
    s3.reset(lambda verb, path, number: "403" if path.endswith("/3") and verb == "GET" else "")
    with pytest.raises(OSError, match="credentials"):
        fetch(url, tmp_path, digest, workers=1)
    s3.reset()
    assert len(contents(fetch(url, tmp_path, digest))) == 4
    fetched = {path.rpartition("/")[2] for verb, path in s3.requests if verb == "GET" and "?" not in path}
    assert fetched == {"3"}


@pytest.fixture
def web(source: str) -> Iterator[str]:
    class Files(QuietHandler, SimpleHTTPRequestHandler): ...

    with serving(functools.partial(Files, directory=source)) as server:
        yield f"http://127.0.0.1:{server.server_port}"


def test_a_file_of_a_web_server_is_staged(web: str, tmp_path: Path) -> None:
    url = f"{web}/train/1.tar"
    staged = fetch(url, tmp_path, str(describe(url)["digest"]))
    assert contents(staged) == {"1.tar": FILES["train/1.tar"]}
    with pytest.raises(StageError, match="the URL of one file"):
        fetch(f"{web}/train/", tmp_path, DIGEST)


def test_the_command_exits_by_kind(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fetch", source, str(tmp_path / "out"), "--digest", DIGEST]) == 2
    assert main(["fetch", f"{tmp_path}/none/", str(tmp_path / "out"), "--digest", DIGEST]) == 1
    assert main(["describe", source]) == 0
    digest = json.loads(capsys.readouterr().out)["digest"]
    assert main(["fetch", source, str(tmp_path / "out"), "--digest", digest, "--max-gib", "1"]) == 0
    assert main(["verify", str(tmp_path / "out" / folder_name(digest))]) == 0
