"""Submits a folder of code and a command, or a TrainJob manifest, as a job of the team, and follows it to its
end: the part of `trainyard run` that needs the cluster (see `start`). `rerun` submits an earlier job again,
if its code, image and data are still the same.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from infra.common import names
from infra.errors import InputError, Problem
from infra.stackfile import JobSpec, parse_job
from trainyard.jobs.cluster import MemberCluster, key_of
from trainyard.jobs.key import JOB, ORIGIN, PRIORITIES, JobKey
from trainyard.jobs.manifest import Checkout, manifest
from trainyard.jobs.placement import PlacedJob, Size, choose, flavors_of
from trainyard.jobs.retrying_jobs import take_up
from trainyard.jobs.runtimes import Runtime, runtime_of
from trainyard.jobs.secrets import Secrets
from trainyard.jobs.state import Jobs
from trainyard.jobs.submit import await_data, interruptible, new_run, submit
from trainyard.source.files import Listing, list_files
from trainyard.source.options import RunRequest, Written, check_program, made_up, secrets_of
from trainyard.source.pack import Pack, counted, pack, printable, size_of
from trainyard.source.upload import CodeStore
from trainyard.stack.session import Session

NUM_SHOWN = 5


@dataclass(frozen=True)
class Ready:
    """A job that was checked, and of which nothing is submitted or uploaded yet."""

    placed: PlacedJob
    runtime: Runtime
    run: str
    """Name of the run and of its folder."""
    checkout: Checkout
    replaces: str = ""
    """UID of the ended job of the same name, which is replaced; empty where none exists."""
    pack: Pack | None = None

    @property
    def key(self) -> JobKey:
        return JobKey(self.placed.job.team, self.placed.job.name)

    def with_code(self, listing: Listing, packed: Pack) -> Ready:
        """Return it with the folder that it starts in."""
        job = self.placed.job.model_copy(update={"code": packed.digest, "files": ()})
        checkout = replace(self.checkout, commit=listing.commit, dirty=listing.dirty)
        return replace(self, placed=replace(self.placed, job=job), checkout=checkout, pack=packed)

    def manifest(self) -> dict[str, Any]:
        """Return the TrainJob."""
        job, placement = self.placed.job, self.placed.placement
        return manifest(job, self.run, self.runtime.datasets, placement, checkout=self.checkout)


def submit_job(
    session: Session, job: JobSpec, team: str, asked: RunRequest, *, dry_run: bool, detach: bool
) -> None:
    """Submit a job, and follow it to its end.

    Args:
        session: the stack, or the context, that reaches the cluster.
        job: the job as it was written; the cluster determines what it leaves open.
        team: its team; empty if only the cluster determines it.
        asked: the command line.
        dry_run: print the job instead.
        detach: end after the submission.

    Raises:
        InputError: the message has all problems; nothing was started.
        TrainyardError: the cluster refused it, or the job failed (exit code 4).
        InterruptedByUser: Ctrl-C; a submitted job continues.
    """
    has_code = asked.takes_folder and job.command is not None and job.code is None
    with interruptible(session, JobKey(job.team, job.name)):
        # First, since problems of the folder are reported without a cluster.
        code = _packed(session, job, Path.cwd()) if has_code else None
        ready = _prepared(session, job, team, asked)
        _start(session, ready.with_code(*code) if code else ready, dry_run=dry_run, detach=detach)


def rerun_job(session: Session, name: str, new_name: str, *, dry_run: bool, detach: bool) -> None:
    """Start the same job under another name: with its code, image, command and data.

    Raises:
        InputError: there is no such job, or its code, image or data are no longer available.
    """
    key = key_of(session, name)
    annotations = (Jobs(session.api).get(key) or {}).get("metadata", {}).get("annotations") or {}
    if JOB not in annotations:
        fix = "start it again in the same way as before"
        raise InputError(
            [Problem("job", f"{name}, which does not record what it ran", "a job of `trainyard run`", fix)]
        )
    asked_before = parse_job(json.loads(annotations[JOB]))
    job = asked_before.model_copy(update={"name": new_name or made_up(name)})
    origin = json.loads(annotations[ORIGIN])
    cluster = MemberCluster(session)
    with interruptible(session, JobKey(job.team, job.name)):
        placed = choose(job, Size(), flavors_of(cluster, key.namespace))
        runtime = runtime_of(cluster, placed.job)
        _check_same(origin, job, runtime)
        if job.code and not CodeStore(session, cluster, key.namespace).has(job.code):
            fix = "check out the code that it ran, and use `trainyard run`"
            got = f"{job.code}: not in the team's store"
            raise InputError([Problem("code", got, "code in the team's store", fix)])
        image, commit = str(origin.get("image", "")), str(origin.get("commit", ""))
        checkout = Checkout(image, commit, dirty=bool(origin.get("dirty")))
        ready = _named(session, Ready(placed, runtime, "", checkout))
        _start(session, ready, dry_run=dry_run, detach=detach)


def _check_same(origin: dict[str, Any], job: JobSpec, runtime: Runtime) -> None:
    """Refuse to call something the same that is not."""
    problems = []
    if not job.image and origin.get("image") not in {"", None, runtime.image}:
        fix = "use `trainyard run`, which uses the runtime's present image or that of --image"
        got = f"the runtime {job.runtime} has another one now, {runtime.image}"
        problems.append(Problem("image", got, str(origin["image"]), fix))
    now = {each.name: each.digest for each in runtime.datasets}
    for name, digest in origin.get("datasets", {}).items():
        if now.get(name) != digest:
            fix = "use `trainyard run`, which uses the present dataset"
            problems.append(Problem(f"dataset {name}", str(now.get(name, "no such dataset")), digest, fix))
    if problems:
        raise InputError(problems)


def _only_team(cluster: MemberCluster) -> str:
    return names.team_of(cluster.namespace)


def _packed(session: Session, job: JobSpec, folder: Path) -> tuple[Listing, Pack]:
    """Pack the folder, check that the job's program is in it, and report what was packed."""
    listing = list_files(folder, job.files)
    check_program(job, listing)
    started = time.monotonic()
    packed = pack(folder, listing.names, job.files)
    _log_folder(session, listing, packed, time.monotonic() - started)
    return listing, packed


def _prepared(session: Session, job: JobSpec, team: str, asked: RunRequest) -> Ready:
    """Look at all that can be wrong, and start nothing."""
    cluster = MemberCluster(session)
    job = job.model_copy(update={"team": team or _only_team(cluster)})
    namespace = names.team_namespace(job.team)
    job = _with_secrets(job, asked, cluster, namespace)
    placed = choose(job, Size(asked.gpus, asked.nodes), flavors_of(cluster, namespace))
    runtime = runtime_of(cluster, placed.job)
    runtime.check_datasets(placed.job)
    _check_priority(cluster, placed.job)
    return _named(session, Ready(placed, runtime, "", Checkout(runtime.image)))


def _named(session: Session, ready: Ready) -> Ready:
    """Return it with the name of its run.

    Raises:
        InputError: a job of its name has not ended.
    """
    key = ready.key
    jobs = Jobs(session.api)
    existing = jobs.get(key)
    if existing is not None and not jobs.state(key).ended:
        fix = f"follow it: {take_up(key)}; delete it: trainyard cancel {key.name}; or --name another"
        raise InputError([Problem("name", f"{key.name}, which has not ended", "a unique job name", fix)])
    run = new_run(session, key, exists=existing is not None)
    return replace(ready, run=run, replaces=str(existing["metadata"]["uid"]) if existing else "")


def _log_folder(session: Session, listing: Listing, packed: Pack, seconds: float) -> None:
    what = f"{counted(packed.num_files, 'file')}, {size_of(packed.num_bytes)}"
    where = (
        f", commit {listing.commit[:12]}{' and changes' if listing.dirty else ''}" if listing.commit else ""
    )
    session.progress.log(f"code   {what}, packed in {seconds:.1f} s: {packed.digest[:19]}…{where}")
    left = {
        "git does not track it": (listing.untracked, "git add, or --include"),
        "git ignores it": (listing.ignored, "--include sends it"),
    }
    for why, (found, fix) in left.items():
        if found:
            session.progress.log(f"code   not sent, since {why}: {_first(found)} ({fix})")


def _first(found: Sequence[str]) -> str:
    more = len(found) - NUM_SHOWN
    return ", ".join(map(printable, found[:NUM_SHOWN])) + (f" and {more} more" if more > 0 else "")


def _with_secrets(job: JobSpec, asked: RunRequest, cluster: MemberCluster, namespace: str) -> JobSpec:
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
            problems.append(Problem("--secret", f"{name}: not in {namespace}", "an existing secret", fix))
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


def _start(session: Session, ready: Ready, *, dry_run: bool, detach: bool) -> None:
    if dry_run:
        from trainyard.jobs.outlook import outlook_of

        sys.stdout.write(yaml.safe_dump(ready.manifest(), sort_keys=False, width=110))
        sys.stdout.flush()
        for line in outlook_of(MemberCluster(session), ready.placed):
            session.progress.log(line)
        return
    if ready.pack is not None:
        _upload(session, ready.key.namespace, ready.pack)
    await_data(session, ready.placed.job)
    if ready.replaces:
        Jobs(session.api).delete_and_wait(ready.key, uid=ready.replaces)
    _submit(session, ready.key, ready.manifest(), ready.run, detach=detach)


def _upload(session: Session, namespace: str, packed: Pack) -> None:
    """Send a pack, unless the team's store has it."""
    asked = time.monotonic()
    with closing(CodeStore(session, MemberCluster(session), namespace).started()) as program:
        if program.has(packed.digest):
            waited = time.monotonic() - asked
            session.progress.log(f"code   already in the team's store (asked in {waited:.1f} s)")
            return
        with session.progress.task("code to the team's store") as task:
            program.take(packed, lambda done, total: task.advanced(done, total, size_of(total)))


def submit_as_it_is(session: Session, found: Written, team: str, *, dry_run: bool, detach: bool) -> None:
    """Submit a TrainJob unchanged; the API server validates it."""
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
    key = JobKey(names.team_of(namespace), str(about["name"]))
    with interruptible(session, key):
        _submit(session, key, body, "", detach=detach)


def _submit(session: Session, key: JobKey, body: dict[str, Any], run: str, *, detach: bool) -> None:
    submit(session, key, body, run)
    if not detach:
        from trainyard.jobs.follow import follow  # after the job is submitted: 40 ms

        follow(session, key, run, int((body["spec"].get("trainer") or {}).get("numNodes", 1)))
