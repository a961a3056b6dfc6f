"""`trainyard run`: submits a folder of code and a command as a job of the team."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import yaml
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from infra import names
from infra.errors import ExitCode, InputError, InterruptedByUser, Problem, TrainyardError
from infra.spec import JobSpec, parse_job
from infra.targets.kubeconfig import namespace_of
from trainyard.jobs import CHECKPOINTS, JOB, TEAM, Checkout, JobKey, JobPlacement, Jobs, JobState, manifest
from trainyard.logs import follow_logs
from trainyard.member.asked import Asked, Written, check_program, job_of, made_up, secrets_of, written
from trainyard.member.cluster import PRIORITIES, MemberCluster
from trainyard.member.folder import Listing, list_files
from trainyard.member.offers import Chosen, Size, choose, flavors_of
from trainyard.member.outlook import outlook_of
from trainyard.member.pack import Pack, mib, pack, printable
from trainyard.member.runtimes import Runtime, runtime_of
from trainyard.member.secrets import Secrets
from trainyard.member.upload import CodeStore
from trainyard.run import await_data, key_of, new_run
from trainyard.session import Session
from trainyard.train_job import ORIGIN

NUM_SHOWN = 5
RETRY_SECONDS = 5.0
GIVE_UP_SECONDS = 600.0
"""Without an answer of the API server, until following ends; the job continues."""
_UNAUTHORIZED, _SERVER_ERROR, _TOO_MANY = 401, 500, 429


Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Code:
    """A folder, packed."""

    listing: Listing
    pack: Pack | None


_NO_CODE = Code(Listing(()), None)
_UNNAMED = "unnamed"
"""Placeholder for the team, until the cluster's teams are known."""


@dataclass(frozen=True)
class Ready:
    """A job that is known to be good, and nothing of it is anywhere yet."""

    chosen: Chosen
    runtime: Runtime
    checkout: Checkout
    pack: Pack | None
    stored: Future[float | None] | None = None
    """What `_asked` returns, where the store was asked already."""

    @property
    def key(self) -> JobKey:
        return JobKey(self.chosen.job.team, self.chosen.job.name)

    def manifest(self, run: str) -> dict[str, Any]:
        """Return the TrainJob."""
        chosen = self.chosen
        placement = JobPlacement(chosen.local_queue, chosen.pools)
        return manifest(
            chosen.job, run, self.runtime.datasets, placement, share=chosen.share, checkout=self.checkout
        )


def run_job(session: Session, asked: Asked, *, dry_run: bool, detach: bool) -> None:
    """Start a job, and follow it to its end.

    Raises:
        InputError: with all that is wrong; nothing was started.
        TrainyardError: the cluster refused it, or the job failed (exit code 4).
        InterruptedByUser: Ctrl-C; what was submitted continues.
    """
    found = written(asked)
    team = _named_team(session, asked, found)
    if found.is_train_job:
        _submit_as_it_is(session, found, team, dry_run=dry_run, detach=detach)
        return
    folder = Path.cwd()
    # What is wrong in a file, or a folder, is reported without a cluster.
    job = job_of(asked, found, team or _UNNAMED, folder)
    with interruptible(session, JobKey(job.team, job.name)):
        code = _packed(session, job, folder) if asked.takes_folder else _NO_CODE
        cluster = MemberCluster(session)
        job = job.model_copy(update={"team": team or _only_team(cluster)})
        store = CodeStore(session, cluster, names.team_namespace(job.team))
        stored = _beside(partial(_asked, store, code.pack)) if code.pack and not dry_run else None
        ready = _prepared(cluster, job, asked, code)
        _start(session, cluster, replace(ready, stored=stored), dry_run=dry_run, detach=detach)


def _asked(store: CodeStore, packed: Pack) -> float | None:
    """Return the seconds that the store took to say that it has a pack; None where it has not."""
    started = time.monotonic()
    return time.monotonic() - started if store.has(packed.digest) else None


def _beside(call: Callable[[], Answer]) -> Future[Answer]:
    """Begin a call, and continue; who does not ask for its result does not wait for it, Ctrl-C among them."""
    future: Future[Answer] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future


def rerun_job(session: Session, name: str, new_name: str, *, dry_run: bool, detach: bool) -> None:
    """Start exactly what a job ran, under another name: its code, image, command and data.

    Raises:
        InputError: there is no such job, or what it ran cannot be had any more.
    """
    key = key_of(session, name)
    annotations = (session.jobs.get(key) or {}).get("metadata", {}).get("annotations") or {}
    if JOB not in annotations:
        fix = "start it again as it was started"
        raise InputError(
            [Problem("job", f"{name}, which says not what it ran", "a job of `trainyard run`", fix)]
        )
    asked_before = parse_job(json.loads(annotations[JOB]))
    job = asked_before.model_copy(update={"name": new_name or made_up(name)})
    origin = json.loads(annotations[ORIGIN])
    cluster = MemberCluster(session)
    with interruptible(session, JobKey(job.team, job.name)):
        chosen = choose(job, Size(), flavors_of(cluster, key.namespace))
        runtime = runtime_of(cluster, chosen.job)
        _check_same(origin, job, runtime)
        if job.code and not CodeStore(session, cluster, key.namespace).has(job.code):
            fix = "check out what it ran, and use `trainyard run`"
            raise InputError([Problem("code", f"{job.code}: not in the team's store", "what is stored", fix)])
        image, commit = str(origin.get("image", "")), str(origin.get("commit", ""))
        checkout = Checkout(image, commit, dirty=bool(origin.get("dirty")))
        _start(session, cluster, Ready(chosen, runtime, checkout, None), dry_run=dry_run, detach=detach)


def _check_same(origin: dict[str, Any], job: JobSpec, runtime: Runtime) -> None:
    """Refuse to call something the same that is not."""
    problems = []
    if not job.image and origin.get("image") not in {"", None, runtime.image}:
        fix = "use `trainyard run`, which takes the runtime's present image, or name the image there: --image"
        got = f"the runtime {job.runtime} has another one now, {runtime.image}"
        problems.append(Problem("image", got, str(origin["image"]), fix))
    now = {each.name: each.digest for each in runtime.datasets}
    for name, digest in origin.get("datasets", {}).items():
        if now.get(name) != digest:
            fix = "use `trainyard run`, which takes the data that are there"
            problems.append(Problem(f"dataset {name}", str(now.get(name, "it is gone")), digest, fix))
    if problems:
        raise InputError(problems)


def _named_team(session: Session, asked: Asked, found: Written) -> str:
    """The team that is named, else the one of the context's namespace; empty where neither says."""
    named = asked.flags.get("team") or found.data.get("team")
    if named:
        return str(named)
    namespace = namespace_of(session.context) if session.context else ""
    return namespace.removeprefix(TEAM) if namespace.startswith(TEAM) else ""


def _only_team(cluster: MemberCluster) -> str:
    return cluster.namespace("").removeprefix(TEAM)


def _packed(session: Session, job: JobSpec, folder: Path) -> Code:
    """Pack the folder of a job that is to start in it."""
    if job.command is None or job.code is not None:
        return _NO_CODE
    listing = list_files(folder, job.files)
    check_program(job, listing)
    started = time.monotonic()
    packed = pack(folder, listing.names, job.files)
    _log_folder(session, listing, packed, time.monotonic() - started)
    return Code(listing, packed)


def _prepared(cluster: MemberCluster, job: JobSpec, asked: Asked, code: Code) -> Ready:
    """Look at all that can be wrong, and start nothing."""
    if code.pack is not None:
        job = job.model_copy(update={"code": code.pack.digest, "files": ()})
    namespace = names.team_namespace(job.team)
    job = _with_secrets(job, asked, cluster, namespace)
    chosen = choose(job, asked.size, flavors_of(cluster, namespace))
    runtime = runtime_of(cluster, chosen.job)
    runtime.check_datasets(chosen.job)
    _check_priority(cluster, chosen.job)
    checkout = Checkout(runtime.image, code.listing.commit, dirty=code.listing.dirty)
    return Ready(chosen, runtime, checkout, code.pack)


def _log_folder(session: Session, listing: Listing, packed: Pack, seconds: float) -> None:
    what = f"{packed.num_files} files, {mib(packed.num_bytes)}"
    where = (
        f", commit {listing.commit[:12]}{' and changes' if listing.dirty else ''}" if listing.commit else ""
    )
    session.progress.log(f"code  {what} in {seconds:.1f} s: {packed.digest[:19]}…{where}")
    if listing.untracked:
        shown = ", ".join(map(printable, listing.untracked[:NUM_SHOWN]))
        more = len(listing.untracked) - NUM_SHOWN
        rest = f" and {more} more" if more > 0 else ""
        session.progress.log(f"code  git does not track, so left here: {shown}{rest} (git add, or --include)")


def _with_secrets(job: JobSpec, asked: Asked, cluster: MemberCluster, namespace: str) -> JobSpec:
    wanted = secrets_of(asked.secrets)
    if not wanted:
        return job
    known = Secrets(cluster, namespace)
    found: list[dict[str, str]] = []
    problems = []
    for name, way in wanted:
        newest = known.newest(name)
        if newest is None:
            fix = f"trainyard secret set {name}"
            problems.append(Problem("--secret", f"{name}: not in {namespace}", "one that was set", fix))
        else:
            found.append({"secret": newest.object_name, **way})
    if problems:
        raise InputError(problems)
    data = job.model_dump(exclude_defaults=True)
    return parse_job({**data, "secrets": [*data.get("secrets", ()), *found]})


def _check_priority(cluster: MemberCluster, job: JobSpec) -> None:
    known = [str(each["metadata"]["name"]) for each in cluster.cluster_objects(PRIORITIES)]
    if known and job.priority not in known:
        raise InputError([Problem("priority", job.priority, ", ".join(sorted(known)), "name one of these")])


def _start(session: Session, cluster: MemberCluster, ready: Ready, *, dry_run: bool, detach: bool) -> None:
    key = ready.key
    existing = session.jobs.get(key)
    if existing is not None and not session.jobs.state(key).ended:
        fix = f"follow it: {take_up(key)}; remove it: trainyard cancel {key.name}; or --name another"
        raise InputError([Problem("name", f"{key.name}, which has not ended", "one job of a name", fix)])
    run = new_run(session, key)
    if dry_run:
        sys.stdout.write(yaml.safe_dump(ready.manifest(run), sort_keys=False, width=110))
        sys.stdout.flush()
        for line in outlook_of(cluster, ready.chosen):
            session.progress.log(line)
        return
    await_data(session, ready.chosen.job)
    if ready.pack is not None:
        _upload(session, CodeStore(session, cluster, key.namespace), ready.pack, ready.stored)
    if existing is not None:
        session.jobs.delete_and_wait(key)
    _submit(session, key, ready.manifest(run), run, detach=detach)


def _upload(session: Session, store: CodeStore, packed: Pack, stored: Future[float | None] | None) -> None:
    if stored is not None and (seconds := stored.result()) is not None:
        session.progress.log(f"code  is there already (asked in {seconds:.1f} s)")
        return
    with session.progress.task("code to the team's store") as task:
        store.put(packed, lambda done, total: task.advanced(done, total, mib(total)))


def _submit_as_it_is(session: Session, found: Written, team: str, *, dry_run: bool, detach: bool) -> None:
    """A TrainJob needs nothing of ours: whatever it says, the API server evaluates."""
    about = dict(found.data.get("metadata") or {})
    if not isinstance(about.get("name"), str):
        location = found.source.location(("metadata",))
        fix = "write metadata: {name: …}"
        raise InputError([Problem("metadata.name", "nothing", "the job's name", fix, location)])
    if "namespace" not in about:
        about["namespace"] = names.team_namespace(team or _only_team(MemberCluster(session)))
    namespace = str(about["namespace"])
    body = {**found.data, "metadata": about}
    if dry_run:
        sys.stdout.write(yaml.safe_dump(body, sort_keys=False, width=110))
        return
    key = JobKey(namespace.removeprefix(TEAM), str(about["name"]))
    with interruptible(session, key):
        _submit(session, key, body, "", detach=detach)


def _submit(session: Session, key: JobKey, body: dict[str, Any], run: str, *, detach: bool) -> None:
    session.jobs.submit(body)
    text = f"submitted {key.name}{f' as {run}' if run else ''} to the queue of team {key.team}"
    session.console.print(text, highlight=False, soft_wrap=True)
    if not detach:
        follow(session, key, run)


def follow(session: Session, key: JobKey, run: str) -> None:
    """Show what the queue does with a job and what its first node logs, until it ends.

    Raises:
        TrainyardError: it failed (exit code 4), or the API server is out of reach; the job continues then.
    """
    session.progress.log(f"  Ctrl-C stops watching, not the job; remove it: trainyard cancel {key.name}")
    state = follow_logs(PatientJobs(session, key), key, session.progress)
    if state.phase == "failed":
        fix = f"read `trainyard logs {key.name}`; committed checkpoints are kept"
        problem = Problem(f"job {key.name}", f"failed: {state.reason}", "a job that ends with 0", fix)
        raise TrainyardError([problem], ExitCode.JOB_FAILED)
    run_folder = f", its run's folder {CHECKPOINTS}/{key.name}/{run}" if run else ""
    session.console.print(f"[green]{key.name}: {state.phase}[/]{run_folder}", highlight=False, soft_wrap=True)


class PatientJobs(Jobs):
    """The jobs of a cluster over an unreliable connection."""

    def __init__(self, session: Session, key: JobKey) -> None:
        super().__init__(session.api)
        self._progress, self._take_up = session.progress, take_up(key)

    def state(self, key: JobKey) -> JobState:
        """Read a job once; while there is no answer, ask again.

        Raises:
            TrainyardError: there was none for `GIVE_UP_SECONDS`, or the user's credential has expired.
        """
        deadline, reported = time.monotonic() + GIVE_UP_SECONDS, False
        while True:
            try:
                return super().state(key)
            except (HTTPError, OSError, ApiException) as error:
                if not _passes(error) or time.monotonic() > deadline:
                    raise TrainyardError([self._unreachable(error)]) from error
            if not reported:
                self._progress.log("  queue  no answer of the cluster; the job goes on, asking again")
                reported = True
            time.sleep(RETRY_SECONDS)

    def _unreachable(self, error: Exception) -> Problem:
        status = getattr(error, "status", None)
        got = "401: your credential has expired" if status == _UNAUTHORIZED else f"no answer: {error}"
        fix = f"sign in again or mend the connection; the job goes on: {self._take_up}"
        return Problem("the cluster's API", got.splitlines()[0], "an answer", fix)


def _passes(error: Exception) -> bool:
    """Whether it may be another answer the next time."""
    status = error.status if isinstance(error, ApiException) else None
    return status is None or status >= _SERVER_ERROR or status in {0, _TOO_MANY}


def take_up(key: JobKey) -> str:
    """Return the command that follows a job again."""
    return f"trainyard logs -f {key.name}"


@contextmanager
def interruptible(session: Session, key: JobKey) -> Iterator[None]:
    """Let Ctrl-C end the command and never the job, and say which of it is there.

    Raises:
        InterruptedByUser: in place of what Python raises.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise InterruptedByUser(_submitted_state(session, key)) from None


def _submitted_state(session: Session, key: JobKey) -> str:
    try:
        exists = session.jobs.get(key) is not None
    except (HTTPError, OSError, ApiException, TrainyardError, KeyboardInterrupt):
        return f"If {key.name} was submitted (trainyard jobs), it goes on; follow it again: {take_up(key)}"
    if exists:
        return f"{key.name} goes on; follow it again: {take_up(key)}; remove it: trainyard cancel {key.name}"
    return "No job was submitted. The same command starts it; what is stored of its code is kept."
