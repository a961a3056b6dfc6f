"""Store of build artifacts by the hash of their inputs: locks, atomic publication, a check of file sizes, and
pruning.

Under the root, `<kind>/<name>-<key>/` is a complete artifact with its seal, a file that lists all other files
and their sizes. `.<name>-<key>.<random>.partial` beside it is an artifact in the making, and `locks/` has the
locks. A folder without a seal, or with other sizes than the seal lists, is made again.
"""

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock

SEAL = ".seal.json"
KEY_LENGTH = 12
RETAINED_SECONDS = 24 * 3600


@dataclass(frozen=True)
class Entry:
    """Identity of an artifact: `kind/name` for messages, and the hash of all its inputs."""

    kind: str
    name: str
    key: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True)
class Seal:
    """Metadata that is written last into an artifact: its files, and how it was made."""

    origin: str
    """Origin of the artifact, for messages: "built from k8s.io/kubernetes 1.35.4"."""
    seconds: float
    files: dict[str, int]
    """Relative path of every regular file → size in bytes."""


def input_key(*parts: object) -> str:
    """Hash the inputs of an artifact: plain values, and files by `file_digests`."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]


def file_digests(root: Path, files: Iterable[Path]) -> dict[str, str]:
    """Relative path → SHA-256 of each file under `root`."""
    return {str(file.relative_to(root)): sha256(file) for file in sorted(files)}


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    return file_digest(file, "sha256")


def file_digest(file: Path, algorithm: str) -> str:
    """Return the digest of a file by an algorithm of `hashlib`, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, algorithm).hexdigest()


class ArtifactStore:
    """Artifacts below a root folder; safe for several processes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, entry: Entry) -> Path:
        """Return the path of the artifact, whether it exists or not."""
        return self.root / entry.kind / f"{entry.name}-{entry.key}"

    def find_seal(self, entry: Entry) -> Seal | None:
        """Return the seal of a whole artifact; None if there is none or it is damaged."""
        folder = self.folder(entry)
        try:
            seal = Seal(**json.loads((folder / SEAL).read_text()))
            # By strings: a path object for each of the training environment's 38,000 files takes 0.2 s.
            whole = all(os.lstat(f"{folder}/{name}").st_size == size for name, size in seal.files.items())
        except (OSError, ValueError, TypeError):
            return None
        return seal if whole else None

    def make(self, entry: Entry, fill: Callable[[Path], str]) -> Seal:
        """Return the artifact's seal; if it does not exist, let `fill` write it and return its origin.

        A second caller waits and reuses the result. A failure leaves nothing; leftovers of killed runs are
        removed. A partial folder's name is never used twice: no orphan of a killed run can write into it.
        """
        with self._locked(entry):
            seal = self.find_seal(entry)
            if seal is not None:
                return seal
            folder = self.folder(entry)
            folder.parent.mkdir(parents=True, exist_ok=True)
            for left in (folder, *folder.parent.glob(f".{folder.name}.*.partial")):
                shutil.rmtree(left, ignore_errors=True)
            partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".partial", dir=folder.parent))
            try:
                partial.chmod(0o755)
                started = time.monotonic()
                origin = fill(partial)
                seal = Seal(origin, round(time.monotonic() - started, 1), _sizes(partial))
                (partial / SEAL).write_text(json.dumps(asdict(seal)))
                os.sync()
                partial.rename(folder)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
            return seal

    def prune(self, entry: Entry, *, keep: int) -> None:
        """Remove artifacts of the entry's name, but for the newest `keep` and those of the last day.

        Another checkout on this host may use a version that is not the newest: its clusters read it.
        """
        with self._locked(entry):
            length = len(f"{entry.name}-") + KEY_LENGTH
            made = (folder for folder in self.folder(entry).parent.glob(f"{entry.name}-*"))
            ages = {folder: folder.stat().st_mtime for folder in made if len(folder.name) == length}
            for old in sorted(ages, key=lambda folder: ages[folder])[:-keep]:
                if ages[old] < time.time() - RETAINED_SECONDS:
                    shutil.rmtree(old, ignore_errors=True)

    @contextmanager
    def _locked(self, entry: Entry) -> Iterator[None]:
        locks = self.root / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        with FileLock(locks / f"{entry.kind}-{entry.name}.lock"):
            yield


def _sizes(folder: Path) -> dict[str, int]:
    sizes = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            file = Path(parent, name)
            sizes[str(file.relative_to(folder))] = file.lstat().st_size
    return sizes
