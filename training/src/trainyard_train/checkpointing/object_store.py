"""`ObjectStore`: checkpoints in S3 and stores that speak its protocol, Google Cloud Storage, or Azure, by
obstore.

No rename is needed, since an object appears whole or not at all. The files of a checkpoint go to
`step-N/<nonce>/`, where no reader looks for them. The manifest, written last as `step-N/manifest.json`,
commits the checkpoint; a store with conditional writes creates it only if there is none.

A checkpoint is deleted manifest first, or only marked for the bucket's lifecycle rule.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from threading import Event
from typing import TYPE_CHECKING, ClassVar, Final

from trainyard_train.checkpointing.checkpoint import (
    KEEP_THREE,
    MANIFEST,
    PIN,
    CheckpointStore,
    Manifest,
    Retention,
    for_each,
    step_name,
    step_of,
)
from trainyard_train.checkpointing.digests import Data, FileEntry, seal
from trainyard_train.checkpointing.lifecycle import Marks, marks_of
from trainyard_train.config_base import extra

with extra("stores"):
    import obstore
    from obstore.store import from_url

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Client

_SCHEMES: Final = ("s3", "gs", "az")
"""Schemes of URLs of S3, Google Cloud Storage and Azure Blob Storage."""
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL", "STORAGE_EMULATOR_HOST", "AZURE_STORAGE_ENDPOINT")
"""Variables with the endpoint, if it is not the default one; a self-hosted one may lack TLS."""
_DAMAGED: Final = "damaged"
_REPLACED: Final = "replaced"
"""Names of manifests that were set aside begin so."""
MARKED: Final = "superseded"
"""Name of the file that lists the checkpoints marked for the bucket's lifecycle rule."""
_PARTS: Final = 10_000
"""Maximum number of parts of an upload. A part has 5 MiB to 5 GiB, except for the last (docs.aws.amazon.com,
Amazon S3 multipart upload limits), so a file may have 48 TiB. Google Cloud Storage has the same limits; Azure
takes more parts."""
_PART: Final = 8 << 20
"""Bytes of a part, unless the file would then have too many parts."""
_IN_FLIGHT: Final = 96 << 20
"""Bytes of the parts that are sent at once, if that is more than two parts."""
_CREATES: Final = 3
"""Attempts at a conditional write; S3 documents that a conflict (409) should be retried."""
_FILES_AT_ONCE: Final = 16
"""Maximum number of files that parts are read from at once."""
_RETRIES: Final = 20
"""Maximum number of retries of one request, within its timeout."""
_UNKNOWN_CONDITION: Final = re.compile(r"NotImplemented|status[a-z ]*: 501", re.I)
"""The error of a store without conditional writes: S3 before August 2024, and stores like it, answer 501
(ceph/s3-tests#218)."""
_VERSIONS: Final = {
    "s3": "an earlier version of its objects (aws s3api list-object-versions --bucket {})",
    "gs": "an earlier version of its objects (gcloud storage ls --all-versions gs://{})",
    "az": "an earlier version of its blobs (az storage blob list --include vd --container-name {})",
}
"""Where former content of a bucket may be found, by scheme."""
_ADVICE: Final = {
    "nosuchbucket": "create the bucket, or correct checkpoint.store",
    r"timetooskewed|request date header too old|reasonable timeframe": (
        "this host's clock is wrong: check its time service"
    ),
    r"permission|unauthenticated|status[a-z ]*: 40[13]": "check the credentials and the bucket's policy",
    r"status[a-z ]*: 507|quota|no space": "the store is full: free space, or lower checkpoint.keep_last",
    r"slow ?down|status[a-z ]*: 50[0234]": "the store is overloaded or down; the next checkpoint tries again",
    r"kind: timeout|timed ?out|read timeout": "the store hangs: check it, or raise timeouts.store",
    r"connect|dns|sending request": "the store cannot be reached: check its endpoint (AWS_ENDPOINT_URL)",
}
"""Advice to the user, by the client library's message."""


class StoreError(OSError):
    """A request to the store failed; the message has the object and the next step."""


@dataclass(frozen=True)
class ObjectStore(CheckpointStore):
    """A prefix in a bucket."""

    reads_ahead: ClassVar[int] = 4
    url: str
    """URL of the folder, such as `s3://bucket/runs/7`."""
    retention: Retention = KEEP_THREE
    timeout_seconds: float = 60
    """Timeout of one request with all its retries, in seconds."""
    _unconfirmed: set[str] = field(default_factory=set, init=False, compare=False)
    """Staging folders whose manifest was sent without an answer: they may be committed now or at any
    moment."""
    _unconditional: Event = field(default_factory=Event, init=False, compare=False)
    """Set once the store has refused a condition: that takes seconds, so conditions are not sent again."""
    client: Client = field(default=None, repr=False, compare=False)  # type: ignore[assignment]
    """obstore's client of the folder; created from `url` if not given."""

    def __post_init__(self) -> None:
        if self.client is None:
            object.__setattr__(self, "client", connect(self.url, self.timeout_seconds))

    @property
    def where(self) -> str:
        return self.url

    def begin(self, step: int) -> str:
        return f"{step_name(step)}/{secrets.token_hex(4)}"

    def write(self, staged: str, name: str, data: Data) -> FileEntry:
        entry = seal(data)
        self.put(f"{staged}/{name}", data)
        return entry

    def commit(self, staged: str, manifest: Manifest) -> None:
        step = manifest.step
        there = self._list(step_name(step))
        nonce = staged.rpartition("/")[2]
        for name, entry in manifest.files.items():
            if (size := there.get(f"{nonce}/{name}")) is None:
                raise StoreError(
                    f"{self._full(staged)}: {name} is gone: another run has deleted this staging folder"
                )
            if size != entry.size:
                raise StoreError(
                    f"{self._full(staged)}/{name}: got {size} bytes, {entry.size} were sent: the store, or a"
                    " proxy before it, has cut it short; the next checkpoint tries again"
                )
        if MANIFEST in there and self.holds(manifest):
            self.discard(staged)
            return
        name, body = f"{step_name(step)}/{MANIFEST}", replace(manifest, draft=nonce).encode()
        if MANIFEST in there:
            self.put(f"{step_name(step)}/{_REPLACED}.{secrets.token_hex(4)}.json", self.read(name))
        self._unconfirmed.add(staged)
        if MANIFEST in there:
            self.put(name, body)  # not deleted first: at any moment the step has a checkpoint
        stands = MANIFEST in there or self._create(name, body)
        self._unconfirmed.remove(staged)
        if stands:
            return
        self.discard(staged)
        if not self.holds(manifest):
            raise StoreError(f"{self._full(step_name(step))}: another run has committed this step meanwhile")

    def supersede(self, steps: Sequence[int]) -> None:
        if self.retention.tag:
            self._mark(steps)
        else:
            for_each(self.remove, steps)

    def spare(self, steps: Collection[int], *, copied: bool = False) -> None:
        noted = self._marked()
        if again := set(steps) if copied and self.retention.tag else noted & set(steps):
            for step in again:
                self._for_objects(step, self._marks.unmark)
            self._note(noted - again)

    def remove(self, step: int) -> None:
        self._delete([f"{step_name(step)}/{MANIFEST}"])  # first: then it no longer counts as committed
        self._delete_below(step_name(step))

    def discard(self, staged: str) -> None:
        if staged in self._unconfirmed:  # `collect_garbage` checks whether it was committed
            return
        with contextlib.suppress(StoreError):
            self._delete_below(staged)

    def collect_garbage(self) -> None:
        """Delete uncommitted files. Quarantined manifests remain."""
        for step, names in self._by_step().items():
            if any(name.startswith((_DAMAGED, _REPLACED)) for name in names):
                continue
            try:
                manifest = self.open(step).manifest if MANIFEST in names else None
            except ValueError:  # loading reports what is wrong with it
                continue
            # Another program may have copied a folder here, whose files are beside the manifest.
            retained = [manifest.draft] if manifest and manifest.draft else manifest.files if manifest else ()
            retained_names = {MANIFEST, PIN, *retained}
            uncommitted = [name for name in names if name.partition("/")[0] not in retained_names]
            self._delete([f"{step_name(step)}/{name}" for name in uncommitted])

    def committed(self) -> list[int]:
        return sorted((step for step, names in self._by_step().items() if MANIFEST in names), reverse=True)

    def read(self, name: str) -> bytes:
        with self._explained("get", name):
            return bytes(obstore.get(self.client, name).bytes())

    def read_range(self, name: str, start: int, stop: int) -> Data:
        with self._explained("get", name):
            return memoryview(obstore.get_range(self.client, name, start=start, end=stop))

    def read_parts(self, parts: Sequence[tuple[str, int, int]]) -> list[Data]:
        """Read parts of many files in parallel, each given by name, start and end."""
        of_file: dict[str, list[tuple[int, int]]] = {}
        for name, start, stop in parts:
            of_file.setdefault(name, []).append((start, stop))
        with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
            found = dict(zip(of_file, pool.map(self._read_ranges, of_file, of_file.values()), strict=True))
        return [next(found[name]) for name, _, _ in parts]

    def _read_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> Iterator[Data]:
        starts, ends = zip(*ranges, strict=True)
        with self._explained("get", name):
            found = obstore.get_ranges(self.client, name, starts=starts, ends=ends)
        return iter([memoryview(each) for each in found])

    def size(self, name: str) -> int | None:
        """Size of a file in bytes; None if it does not exist."""
        try:
            return self.listing(name)[name][0]
        except FileNotFoundError:
            return None

    def listing(self, name: str = "") -> dict[str, tuple[int, str]]:
        """Size in bytes, and ETag, of all that is here, or of the file with this name."""
        with self._explained("head" if name else "list", name):
            client = self.client
            found = [obstore.head(client, name)] if name else obstore.list(client).collect()
            return {each["path"]: (each["size"], (each["e_tag"] or "").strip('"')) for each in found}

    def quarantine(self, step: int) -> str:
        quarantined = f"{step_name(step)}/{_DAMAGED}.{secrets.token_hex(4)}.json"
        self.put(quarantined, self.read(f"{step_name(step)}/{MANIFEST}"))
        self._delete([f"{step_name(step)}/{MANIFEST}"])
        return quarantined

    def delete(self, name: str) -> None:
        self._delete([name])

    def pinned(self) -> set[int]:
        return {step for step, names in self._by_step().items() if {MANIFEST, PIN} <= {*names}}

    def quarantined(self) -> list[str]:
        return [
            f"{step_name(step)}/{name}"
            for step, names in self._by_step().items()
            for name in names
            if name.startswith((_DAMAGED, _REPLACED))
        ]

    @property
    def backups(self) -> str:
        return _VERSIONS.get(self.url.partition("://")[0], "a backup").format(
            self.url.partition("://")[2].partition("/")[0]
        )

    def _mark(self, steps: Sequence[int]) -> None:
        """Mark checkpoints for the bucket's rule that deletes them, and note which, for later processes."""
        noted = self._marked() if steps else set()
        marked = [step for step in steps if step in noted]
        new = [step for step in steps if step not in noted]
        try:
            for step in new:
                self._for_objects(step, self._marks.mark)
                marked.append(step)
        finally:
            if new:
                self._note(marked)

    def _note(self, marked: Iterable[int]) -> None:
        self.put(MARKED, "".join(f"{step_name(step)}\n" for step in marked).encode())

    def _for_objects(self, step: int, change: Callable[[str, str], None]) -> None:
        for name in self._list(step_name(step)):
            path = f"{step_name(step)}/{name}"
            bucket, _, key = self._full(path).partition("/")
            with self._explained("mark", path):
                change(bucket, key)

    def _marked(self) -> set[int]:
        """The steps that were noted as marked."""
        try:
            lines = self.read(MARKED).decode(errors="replace").splitlines()
            return {step for line in lines if (step := step_of(line)) is not None}
        except FileNotFoundError:
            return set()

    @cached_property
    def _marks(self) -> Marks:
        return marks_of(self.url.partition("://")[0], self.timeout_seconds)

    def _by_step(self) -> dict[int, list[str]]:
        """Names of objects, seen from their step."""
        steps: dict[int, list[str]] = {}
        for name in self._list():
            first, _, rest = name.partition("/")
            step = step_of(first)
            if step is not None and rest:
                steps.setdefault(step, []).append(rest)
        return steps

    def _list(self, below: str = "") -> dict[str, int]:
        """Sizes in bytes of all files below a name, by their names from there on."""
        with self._explained("list", below):
            found = obstore.list(self.client, below or None).collect()
            return {each["path"][len(below) :].lstrip("/"): each["size"] for each in found}

    def put(self, name: str, data: Data) -> None:
        """Write a file, a large one in parts straight from memory; it appears whole or not at all."""
        part = part_size(len(data))
        at_once = max(2, _IN_FLIGHT // part)
        with self._explained("put", name):
            obstore.put(self.client, name, data, chunk_size=part, max_concurrency=at_once)

    def _create(self, name: str, data: bytes) -> bool:
        """Write a file if none exists, in stores with conditional writes; returns whether this one exists.

        After a lost response, a repeated request or a conflict, an existing file may be another writer's or
        ours: its content is compared.
        """
        if self._unconditional.is_set():
            self.put(name, data)
            return True
        for attempt in range(1, _CREATES + 1):
            try:
                with self._explained("put", name):
                    obstore.put(self.client, name, data, mode="create")
                return True
            except StoreError as error:
                if _UNKNOWN_CONDITION.search(str(error)):
                    self._unconditional.set()
                    self.put(name, data)
                    return True
                found = self._content(name)
                there_already = type(error.__cause__).__name__ == "AlreadyExistsError"  # 409 and 412
                if found == data or (there_already and found is not None):
                    return found == data
                if not there_already or attempt == _CREATES:
                    raise
        raise AssertionError  # the last attempt returns or raises

    def _content(self, name: str) -> bytes | None:
        """Content of a small file; None if it does not exist, or the store does not answer."""
        try:
            return self.read(name)
        except OSError:
            return None

    def _delete(self, names: Sequence[str]) -> None:
        """Delete files, many at once where the store can; missing ones are ignored."""
        if not names:
            return
        which = f"{names[0]}, one of {len(names)} files" if names[1:] else names[0]
        with self._explained("delete", which):
            with contextlib.suppress(FileNotFoundError):  # some stores raise it before all are deleted
                obstore.delete(self.client, names if names[1:] else names[0])
                return
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    obstore.delete(self.client, name)

    def _delete_below(self, folder: str) -> None:
        self._delete([f"{folder}/{name}" for name in self._list(folder)])

    def _full(self, name: str) -> str:
        """The bucket, and the whole name in it."""
        root = self.url.partition("://")[2].rstrip("/")
        return f"{root}/{name}".rstrip("/")

    @contextlib.contextmanager
    def _explained(self, verb: str, name: str) -> Iterator[None]:
        """Convert whatever obstore raises to one kind of error, with what to do about it."""
        try:
            yield
        except FileNotFoundError as error:
            if "nosuchbucket" in str(error).lower():
                raise StoreError(_message(verb, self._full(name), error)) from None
            raise
        except Exception as error:
            raise StoreError(_message(verb, self._full(name), error)) from error


def connect(url: str, timeout_seconds: float) -> Client:
    """Connect to a store by the environment (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, …, or the pod's identity).

    Raises:
        StoreError: the URL is none of a store.
    """
    if url.partition("://")[0] not in _SCHEMES:
        allowed = ", ".join(f"{each}://…" for each in _SCHEMES)
        raise StoreError(f"checkpoint.store: got {url!r}; allowed: {allowed}")
    timeout = timedelta(seconds=timeout_seconds)
    try:
        return from_url(
            url,
            client_options={
                "timeout": timeout,
                "connect_timeout": min(timeout, timedelta(seconds=5)),
                "allow_http": any(os.environ.get(name, "").startswith("http://") for name in _ENDPOINTS),
            },
            retry_config={"max_retries": _RETRIES, "retry_timeout": timeout},
        )
    except Exception as error:
        raise StoreError(_message("open", url, error)) from error


def part_size(size: int) -> int:
    """Bytes of each part of a file of this size, a whole number of MiB."""
    return max(_PART, -(-size // (_PARTS << 20)) << 20)


def _message(verb: str, path: str, error: Exception) -> str:
    text = str(error)
    known = f"{type(error).__name__} {text}".lower()
    advice = next((what for pattern, what in _ADVICE.items() if re.search(pattern, known)), "")
    short = " ".join(text.partition("Debug source")[0].split())[:300].rstrip(": ")
    return f"{verb} {path}: {short}" + (f"; {advice}" if advice else "")
