"""The artifact store: atomic, locked, verified, and cleaned of old artifacts."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from local.toolchain.store import SEAL, ArtifactStore, Entry, file_digests, input_key

ENTRY = Entry("binary", "tool", "0123456789ab")


def hello(folder: Path) -> str:
    (folder / "tool").write_text("hello")
    return "made here"


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path)


def names_in(store: ArtifactStore) -> list[str]:
    """Return the names of artifacts and temporary folders in the store."""
    return [path.name for path in store.folder(ENTRY).parent.iterdir()]


def test_an_artifact_appears_complete_under_its_name_and_key_and_is_made_once(store: ArtifactStore) -> None:
    seal = store.make(ENTRY, hello)
    assert (store.root / "binary" / "tool-0123456789ab" / "tool").read_text() == "hello"
    assert seal.origin == "made here"
    assert seal.files == {"tool": 5}
    assert store.make(ENTRY, lambda _: pytest.fail("made again")).origin == "made here"


def test_a_failed_build_leaves_nothing_and_its_orphans_cannot_write_into_the_next(
    store: ArtifactStore,
) -> None:
    folders = []

    def fail(folder: Path) -> str:
        folders.append(folder)
        hello(folder)
        raise OSError("no luck")

    for _ in range(2):
        with pytest.raises(OSError, match="no luck"):
            store.make(ENTRY, fail)
    assert folders[0] != folders[1]
    assert store.find_seal(ENTRY) is None
    assert names_in(store) == []


@pytest.mark.parametrize("damage", ["truncated", "removed", "unsealed", "seal torn"])
def test_a_damaged_artifact_is_made_again(store: ArtifactStore, damage: str) -> None:
    store.make(ENTRY, hello)
    folder = store.folder(ENTRY)
    if damage == "truncated":
        (folder / "tool").write_text("hel")
    elif damage == "removed":
        (folder / "tool").unlink()
    elif damage == "unsealed":
        (folder / SEAL).unlink()
    else:
        (folder / SEAL).write_text('{"origin": "ma')
    assert store.find_seal(ENTRY) is None
    store.make(ENTRY, hello)
    assert (folder / "tool").read_text() == "hello"


def test_two_concurrent_runs_make_an_artifact_once(store: ArtifactStore) -> None:
    made = []

    def slowly(folder: Path) -> str:
        made.append(folder)
        time.sleep(0.2)
        return hello(folder)

    with ThreadPoolExecutor(4) as pool:
        seals = list(pool.map(lambda _: store.make(ENTRY, slowly), range(4)))
    assert len(made) == 1
    assert len({seal.origin for seal in seals}) == 1


KILLED = """
import sys, time
from pathlib import Path
from local.toolchain.store import ArtifactStore, Entry

def fill(folder):
    (folder / "tool").write_text("hel")
    print("filling", flush=True)
    time.sleep(600)
    return "never"

ArtifactStore(Path(sys.argv[1])).make(Entry("binary", "tool", "0123456789ab"), fill)
"""


def test_files_of_a_killed_run_are_deleted_by_the_next_one(store: ArtifactStore) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(store.root)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout and process.stdout.readline() == "filling\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert [name for name in names_in(store) if name.endswith(".partial")]
    assert store.find_seal(ENTRY) is None

    store.make(ENTRY, hello)
    assert names_in(store) == ["tool-0123456789ab"]


def test_only_the_newest_are_retained_and_longer_names_are_not_touched(store: ArtifactStore) -> None:
    other = Entry("binary", "tool-box", "0123456789ab")
    store.make(other, hello)
    for number in range(4):
        entry = Entry("binary", "tool", f"{number:012}")
        store.make(entry, hello)
        os.utime(store.folder(entry), (number, number))
    store.prune(ENTRY, keep=2)
    assert sorted(names_in(store)) == ["tool-000000000002", "tool-000000000003", "tool-box-0123456789ab"]


def test_todays_artifacts_of_another_clone_are_retained(store: ArtifactStore) -> None:
    for number in range(3):
        store.make(Entry("binary", "tool", f"{number:012}"), hello)
    store.prune(ENTRY, keep=1)
    assert len(names_in(store)) == 3


def test_a_key_changes_with_every_input(tmp_path: Path) -> None:
    file = tmp_path / "go.sum"
    file.write_text("a")
    first = input_key(1, {"flags": "-s"}, file_digests(tmp_path, [file]))
    assert first == input_key(1, {"flags": "-s"}, file_digests(tmp_path, [file]))
    others = [input_key(2, {"flags": "-s"}, file_digests(tmp_path, [file]))]
    others.append(input_key(1, {"flags": "-w"}, file_digests(tmp_path, [file])))
    file.write_text("b")
    others.append(input_key(1, {"flags": "-s"}, file_digests(tmp_path, [file])))
    file.rename(tmp_path / "go.mod")
    others.append(input_key(1, {"flags": "-s"}, file_digests(tmp_path, [tmp_path / "go.mod"])))
    assert len({first, *others}) == 5
