"""Submits jobs: a folder of code and a command, a job.yaml, a TrainJob manifest, and an earlier job again.
Each is checked first, submitted once its data is staged, and followed to its end. What exists is
reported if the command is interrupted.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from infra.clients.kubernetes import ApiError, NoAnswer, Object
from infra.common import names
from infra.errors import InputError, InterruptedByUser, Problem, TrainyardError
from infra.stackfile import JobSpec, load_job, parse_job
from trainyard.jobs.cluster import MemberCluster, key_of
from trainyard.jobs.key import JOB, ORIGIN, PRIORITIES, RUN, SPEC, JobKey
from trainyard.jobs.manifest import Checkout, JobDataset, manifest
from trainyard.jobs.placement import PlacedJob, Size, choose, flavors_of
from trainyard.jobs.retrying_jobs import NOT_SUBMITTED, RetryingJobs, take_up, unanswered
from trainyard.jobs.runtimes import Runtime, runtime_of
from trainyard.jobs.secrets import Secrets, secrets_of
from trainyard.jobs.state import Jobs, Staging
from trainyard.source.files import Listing, list_files
from trainyard.source.options import RunRequest, Written, check_program, made_up
from trainyard.source.pack import Pack, counted, pack, printable, size_of
from trainyard.source.upload import CodeStore
from trainyard.stack.session import Session, next_run

if TYPE_CHECKING:
    from trainyard.source.packages import Installed

NUM_SHOWN = 5
STAGING_POLL_SECONDS = 2.0


@dataclass(frozen=True)
class Ready:
    """A job that was checked, and of which nothing is submitted or uploaded yet."""

    placed: PlacedJob
    datasets: Sequence[JobDataset]
    """Datasets of the cluster, those that the job reads among them."""
    run: str = ""
    """Name of the run and of its folder."""
    checkout: Checkout = field(default_factory=Checkout)
    replaces: str = ""
    """UID of the job of the same name that is replaced; empty where none is."""
    pack: Pack | None = None
    packages: Pack | None = None
    """Packages that the job needs beyond its image."""

    @property
    def job(self) -> JobSpec:
        return self.placed.job

    @property
    def key(self) -> JobKey:
        return JobKey(self.job.team, self.job.name)

    def with_code(self, listing: Listing, packed: Pack) -> "Ready":
        """Return it with the folder that it starts in."""
        job = self.job.model_copy(update={"code": packed.digest, "files": ()})
        checkout = replace(self.checkout, commit=listing.commit, dirty=listing.dirty)
        return replace(self, placed=replace(self.placed, job=job), checkout=checkout, pack=packed)

    def with_packages(self, session: Session) -> "Ready":
        """Return it with the packages that it names and its image lacks, which are installed here.

        Raises:
            InputError: they do not fit the image, or its packages are not known.
        """
        if not self.job.requirements:
            return self
        from trainyard.source.packages import install  # what parses requirements takes 40 ms

        image = self.job.image or self.checkout.image
        of_image = CodeStore(session.api, self.key.namespace).packages_of(image)
        on_nodes = replace(of_image, machine=self.placed.processor or of_image.machine)
        with session.progress.task("packages beyond the image"):
            found = install(on_nodes, self.job.requirements)
        _log_packages(session, found)
        job = self.job.model_copy(
            update={"packages": found.pack.digest if found.pack else None, "requirements": ()}
        )
        return replace(self, placed=replace(self.placed, job=job), packages=found.pack)

    def manifest(self) -> dict[str, Any]:
        """Return the TrainJob."""
        return manifest(self.job, self.run, self.datasets, self.placed.placement, checkout=self.checkout)


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
        job = job.model_copy(update={"team": team or names.team_of(MemberCluster(session).namespace)})
        ready = _named(session, _checked(session, job, asked), asked.run).with_packages(session)
        _start(session, ready.with_code(*code) if code else ready, dry_run=dry_run, detach=detach)


def submit_as_it_is(session: Session, found: Written, team: str, *, dry_run: bool, detach: bool) -> None:
    """Submit a TrainJob unchanged; the API server validates it."""
    about = dict(found.data.get("metadata") or {})
    if not isinstance(about.get("name"), str):
        location = found.source.location(("metadata",))
        fix = "write metadata: {name: …}"
        raise InputError([Problem("metadata.name", "nothing", "the job's name", fix, location)])
    if "namespace" not in about:
        about["namespace"] = names.team_namespace(team or names.team_of(MemberCluster(session).namespace))
    namespace = str(about["namespace"])
    body = {**found.data, "metadata": about}
    if dry_run:
        sys.stdout.write(yaml.safe_dump(body, sort_keys=False, width=110))
        return
    key = JobKey(names.team_of(namespace), str(about["name"]))
    with interruptible(session, key):
        submit(session, key, body)
        if not detach:
            from trainyard.jobs.follow import follow

            follow(session, key, "", int((body["spec"].get("trainer") or {}).get("numNodes", 1)))


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
        store, stored = CodeStore(session.api, key.namespace), {"code": job.code, "packages": job.packages}
        for what, digest in stored.items():
            if digest and not store.has(digest, packages=what == "packages"):
                fix = f"find the {what} that it ran with, and use `trainyard run`"
                raise InputError([Problem(what, f"{digest}: not in the team's store", "stored ones", fix)])
        image, commit = str(origin.get("image", "")), str(origin.get("commit", ""))
        checkout = Checkout(image, commit, dirty=bool(origin.get("dirty")))
        ready = _named(session, Ready(placed, runtime.datasets, checkout=checkout))
        _start(session, ready, dry_run=dry_run, detach=detach)


def runner_of(session: Session, file: Path) -> Callable[[Session, float], None]:
    """Return what runs a job.yaml to its end, once the stack is up; given the session, and the start's time.

    Raises:
        InputError: with everything that is wrong in the file, on the stack and in the folder.
    """
    job = load_job(file, stack=session.stack)
    code = _packed(session, job, Path.cwd()) if job.command is not None and job.code is None else None
    return partial(_run_to_end, job=job, code=code)


def _run_to_end(session: Session, started: float, *, job: JobSpec, code: tuple[Listing, Pack] | None) -> None:
    """Run a job to its end; one that already ended unchanged is reported, not run again.

    Raises:
        TrainyardError: the job failed.
    """
    key = JobKey(job.team, job.name)
    existing = Jobs(session.api).get(key)
    ready = _checked(session, job, RunRequest())
    ready = (ready.with_code(*code) if code else ready).with_packages(session)
    run = _unchanged_run(ready, existing)
    if run is None:
        run = new_run(session, key, existing)
        uid = str(existing["metadata"]["uid"]) if existing else ""
        ready = replace(ready, run=run, replaces=uid)
        _submit_ready(session, ready)
    _follow_ready(session, replace(ready, run=run), started)


def _unchanged_run(ready: Ready, existing: Object | None) -> str | None:
    """Return the run that is in the cluster for just this job, whether it runs or has ended."""
    annotations = (existing or {"metadata": {}})["metadata"].get("annotations", {})
    same = annotations.get(SPEC) == ready.manifest()["metadata"]["annotations"][SPEC]
    return str(annotations.get(RUN, "")) if same else None


def new_run(session: Session, key: JobKey, existing: Object | None = None) -> str:
    """Return the name of the job's next run; a failed run is continued.

    A cluster whose volumes are elsewhere is asked for the existing job alone; without one, the time names
    the run.
    """
    if session.is_on_host:
        return next_run(session.run_root(key.team, key.name))
    of_now = datetime.now(UTC).strftime("run-%Y%m%d-%H%M%S")
    if existing is not None and Jobs(session.api).state(key).phase == "failed":
        return str(existing["metadata"].get("annotations", {}).get(RUN) or of_now)
    return of_now


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


def _packed(session: Session, job: JobSpec, folder: Path) -> tuple[Listing, Pack]:
    """Pack the folder, check that the job's program is in it, and report what was packed."""
    listing = list_files(folder, job.files)
    check_program(job, listing)
    started = time.monotonic()
    packed = pack(folder, listing.names, job.files, listing.stored)
    _log_folder(session, folder, listing, packed, time.monotonic() - started)
    return listing, packed


def _checked(session: Session, job: JobSpec, asked: RunRequest) -> Ready:
    """Look at all that can be wrong, and start nothing."""
    cluster = MemberCluster(session)
    namespace = names.team_namespace(job.team)
    job = _with_secrets(job, asked, cluster, namespace)
    placed = choose(job, Size(asked.gpus, asked.nodes), flavors_of(cluster, namespace))
    runtime = runtime_of(cluster, placed.job)
    runtime.check_datasets(placed.job)
    _check_priority(cluster, placed.job)
    return Ready(placed, runtime.datasets, checkout=Checkout(runtime.image))


def _named(session: Session, ready: Ready, run: str = "") -> Ready:
    """Return it with the name of its run, which may be one to continue.

    Raises:
        InputError: a job of its name has not ended.
    """
    key = ready.key
    jobs = Jobs(session.api)
    existing = jobs.get(key)
    if existing is not None and not jobs.state(key).ended:
        fix = f"follow it: {take_up(key)}; delete it: trainyard cancel {key.name}; or --name another"
        raise InputError([Problem("name", f"{key.name}, which has not ended", "a unique job name", fix)])
    run = run or new_run(session, key, existing)
    return replace(ready, run=run, replaces=str(existing["metadata"]["uid"]) if existing else "")


def _log_folder(session: Session, folder: Path, listing: Listing, packed: Pack, seconds: float) -> None:
    what = f"{counted(packed.num_files, 'file')}, {size_of(packed.num_bytes)}"
    where = (
        f", commit {listing.commit[:12]}{' and changes' if listing.dirty else ''}" if listing.commit else ""
    )
    session.progress.log(f"code   {what}, packed in {seconds:.1f} s: {packed.digest[:19]}…{where}")
    modules = [name for name in packed.absent if (folder / name).is_dir()]
    gone = [name for name in packed.absent if name not in modules]
    left = {
        "it is a submodule that is not checked out": (modules, "git submodule update --init --recursive"),
        "it was deleted, or is no file": (gone, "git restore FILE"),
        "git does not track it": (listing.untracked, "git add, or --include"),
        "git ignores it": (listing.ignored, "--include sends it"),
    }
    for why, (found, fix) in left.items():
        if found:
            session.progress.log(f"code   not sent, since {why}: {_first(found)} ({fix})")
    if packed.pointers:
        session.progress.log(f"code   sent as pointers of Git LFS: {_first(packed.pointers)} (git lfs pull)")


def _log_packages(session: Session, found: "Installed") -> None:
    if found.pack is None:
        session.progress.log("packages the image has all of them")
        return
    what = f"{counted(len(found.names), 'package')} beyond the image, {size_of(found.pack.num_bytes)}"
    session.progress.log(f"packages {what}: {_first(found.names)}: {found.pack.digest[:19]}…")


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
            fix = f"trainyard team secret set {name}"
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
    started = time.time()
    if dry_run:
        from trainyard.jobs.outlook import outlook_of

        sys.stdout.write(yaml.safe_dump(ready.manifest(), sort_keys=False, width=110))
        sys.stdout.flush()
        for line in outlook_of(MemberCluster(session), ready.placed):
            session.progress.log(line)
        return
    _submit_ready(session, ready)
    if not detach:
        _follow_ready(session, ready, started)


def _submit_ready(session: Session, ready: Ready) -> None:
    """Submit a job that was checked, with its code, once its data is there and an earlier one is removed."""
    if ready.pack is not None:
        _upload(session, ready.key.namespace, ready.pack)
    if ready.packages is not None:
        _upload(session, ready.key.namespace, ready.packages, "packages")
    await_data(session, ready.job)
    if ready.replaces:
        Jobs(session.api).delete_and_wait(ready.key, uid=ready.replaces)
    submit(session, ready.key, ready.manifest(), ready.run)


def _follow_ready(session: Session, ready: Ready, started: float) -> None:
    from trainyard.jobs.follow import follow_job  # after the job is submitted: 40 ms

    follow_job(session, ready.job, ready.run, started)


def _upload(session: Session, namespace: str, packed: Pack, what: str = "code") -> None:
    """Send a pack, unless the team's store has it."""
    asked = time.monotonic()
    with closing(CodeStore(session.api, namespace).started(packages=what == "packages")) as program:
        if program.has(packed.digest):
            waited = time.monotonic() - asked
            session.progress.log(f"{what:6} already in the team's store (asked in {waited:.1f} s)")
            return
        with session.progress.task(f"{what} to the team's store") as task:
            program.take(packed, lambda done, total: task.advanced(done, total, size_of(total)))


def submit(session: Session, key: JobKey, body: dict[str, Any], run: str = "") -> None:
    """Submit a job, and report it.

    Raises:
        TrainyardError: the cluster refused it; or did not answer, and may have it.
    """
    try:
        Jobs(session.api).submit(body)
    except NoAnswer as error:  # the request may have arrived
        raise TrainyardError([unanswered(error, _if_submitted(key))]) from error
    # Not by the console, which imports rich while the job's pods start.
    sys.stdout.write(f"submitted {key.name}{f' as {run}' if run else ''} to the queue of team {key.team}\n")
    sys.stdout.flush()


def await_data(session: Session, job: JobSpec) -> None:
    """Return once the job's datasets are staged: a job that waited for one would hold its accelerators.

    Raises:
        TrainyardError: a dataset could not be staged, or nothing stages it.
    """
    jobs = RetryingJobs(session, JobKey(job.team, job.name), submitted=False)
    for dataset in job.datasets:
        staging = jobs.staging(dataset, job.team)
        if staging.phase == "under way":
            with session.progress.task(f"dataset {dataset}"):
                while staging.phase == "under way":
                    time.sleep(STAGING_POLL_SECONDS)
                    staging = jobs.staging(dataset, job.team)
        if staging.phase not in {"staged", "hidden"}:
            raise TrainyardError([_not_staged(dataset, staging)])


def _not_staged(dataset: str, staging: Staging) -> Problem:
    failed = staging.phase == "failed"
    fix = f"read `kubectl logs {staging.job}`" if failed else "bring the stack up: `trainyard up`"
    got = "its staging failed" if failed else "no Job stages it"
    return Problem(f"dataset {dataset}", got, "a staged dataset", fix)


@contextmanager
def interruptible(session: Session, key: JobKey) -> Iterator[None]:
    """Keep the job running whatever ends the command, and report what exists.

    Raises:
        InterruptedByUser: in place of what Python raises at Ctrl-C.
        TrainyardError: the connection broke off, or the user's credential has expired.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise InterruptedByUser(_submitted_state(session, key)) from None
    except (NoAnswer, ApiError) as error:
        if isinstance(error, ApiError) and error.status != HTTPStatus.UNAUTHORIZED:
            raise
        # What runs after a submission has already reported that the job exists.
        raise TrainyardError([unanswered(error, NOT_SUBMITTED)]) from error


def _submitted_state(session: Session, key: JobKey) -> str:
    try:
        exists = Jobs(session.api).get(key) is not None
    except (TrainyardError, KeyboardInterrupt):
        text = _if_submitted(key)
        return text[0].upper() + text[1:]
    if exists:
        again, delete = take_up(key), f"trainyard cancel {key.name}"
        return f"{key.name} continues; follow it again: {again}; delete it: {delete}"
    return "No job was submitted. The same command starts it."


def _if_submitted(key: JobKey) -> str:
    return f"if {key.name} was submitted (trainyard jobs), it continues; follow it again: {take_up(key)}"
