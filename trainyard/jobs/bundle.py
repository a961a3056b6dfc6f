"""`trainyard job bundle`: packs a job's thread stacks, objects, events and logs into one archive.

In objects and events, the values of variables and arguments that are named as secrets are masked. Logs and
thread stacks are packed as they are.
"""

import io
import json
import re
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

from infra.clients.kubernetes import Object
from infra.errors import InputError, Problem
from trainyard.jobs.cluster import MemberCluster
from trainyard.jobs.key import JOB_SETS, TRAIN_JOBS, JobKey
from trainyard.jobs.logs import Selection, StoredLogs, key_of_stored_logs, running_logs
from trainyard.jobs.traces import stacks_of
from trainyard.stack.session import Session

SECRET = re.compile(r"(?i)token|secret|passw|credential|(^|_)key($|_)|api_?key|private|auth")
"""Parts of variables' names whose values are omitted."""
MASK = "*** removed by trainyard job bundle"
ARGUMENT = re.compile(
    r"(?i)(--?[\w-]*(?:token|secret|passw|api[_-]?key|credential)[\w-]*[= ]|://[^/\s:@]*:)[^\s@]+"
)
FLAG = re.compile(r"(?i)--?[\w-]*(token|secret|passw|api[_-]?key|credential)[\w-]*")
"""Argument after which a secret value follows."""
_WITHOUT = frozenset({"managedFields"})


def write_bundle(session: Session, name: str, file: Path | None) -> Path:
    """Write the archive, and return where it is.

    Raises:
        InputError: there is no such job, or the file exists.
        TrainyardError: the job's logs cannot be read.
    """
    key = key_of_stored_logs(session, name)
    file = file or Path(f"{key.name}-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz")
    if file.exists():
        raise InputError([Problem(str(file), "it exists", "an unused path", "name another: --to FILE")])
    with tarfile.open(file, "x:gz", compresslevel=6) as archive:
        for path, content in _contents(session, key):
            _add(archive, f"{key.name}/{path}", content)
        with tempfile.TemporaryDirectory() as folder:
            for log in _logs(session, key, Path(folder)):
                archive.add(log, f"{key.name}/logs/{log.relative_to(folder)}", filter=_private)
                log.unlink()
    return file


def _contents(session: Session, key: JobKey) -> Iterator[tuple[str, bytes]]:
    """Yield path and content: what may go soonest is read first."""
    for pod, text in stacks_of(session, key):
        yield f"stacks/node-{pod.number}.txt", text.encode()
    cluster = MemberCluster(session)
    for path, found in _objects(cluster, key).items():
        yield path, (json.dumps(masked(found), indent=1, default=str) + "\n").encode()


def _objects(cluster: MemberCluster, key: JobKey) -> dict[str, Any]:
    def named(kind: tuple[str, str, str]) -> list[Object]:
        found = cluster.objects(kind, key.namespace)
        return [each for each in found if each["metadata"]["name"] == key.name]

    events = [each for each in cluster.events(key.namespace) if _is_of(each, key.name)]
    return {
        "trainjob.json": named(TRAIN_JOBS),
        "jobset.json": named(JOB_SETS),
        "workload.json": cluster.workload(key),
        "pods.json": cluster.pods(key.namespace, key.name),
        "events.json": sorted(events, key=lambda each: each["metadata"]["creationTimestamp"]),
    }


def _is_of(event: Mapping[str, Any], job: str) -> bool:
    about = str((event.get("involvedObject") or event.get("regarding") or {}).get("name", ""))
    return about == job or re.fullmatch(rf"(trainjob-)?{re.escape(job)}-.*", about) is not None


def _logs(session: Session, key: JobKey, folder: Path) -> Iterator[Path]:
    """Write the log of each node in each attempt, with the times, and yield where it is."""
    logs = StoredLogs(session, key)
    attempts = logs.attempts() if logs.exists() else []
    for attempt in attempts:
        attempt_folder = folder / f"attempt-{attempt}"
        attempt_folder.mkdir()
        with ExitStack() as opened:
            files: dict[int, BinaryIO] = {}
            for line in logs.lines(Selection(attempt=attempt)):
                if line.node not in files:
                    path = attempt_folder / f"node-{line.node}.log"
                    files[line.node] = opened.enter_context(path.open("wb"))
                files[line.node].write(f"{line.moment}Z ".encode() + line.text + b"\n")
        yield from sorted(attempt_folder.iterdir())
    for pod, lines in running_logs(session, key) if not attempts else ():
        path = folder / f"node-{pod.number}.log"
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        yield path


def masked(value: Any) -> Any:  # noqa: ANN401 -- any part of an object
    """Return an object without the values of variables, and of arguments, that are named as secrets are."""
    if isinstance(value, Mapping):
        if SECRET.search(str(value.get("name", ""))) and isinstance(value.get("value"), str):
            value = {**value, "value": MASK}
        return {key: masked(part) for key, part in value.items() if key not in _WITHOUT}
    if isinstance(value, list):
        flags = [False, *(isinstance(each, str) and bool(FLAG.fullmatch(each)) for each in value)]
        return [MASK if after else masked(each) for after, each in zip(flags, value, strict=False)]
    return ARGUMENT.sub(rf"\1{MASK}", value) if isinstance(value, str) else value


def _add(archive: tarfile.TarFile, path: str, content: bytes) -> None:
    about = tarfile.TarInfo(path)
    about.size, about.mtime = len(content), int(time.time())
    archive.addfile(_private(about), io.BytesIO(content))


def _private(about: tarfile.TarInfo) -> tarfile.TarInfo:
    """The archive has no data of the user who made it, and only their owner can read unpacked files."""
    about.mode, about.uid, about.gid, about.uname, about.gname = 0o600, 0, 0, "", ""
    return about
