"""`trainyard rehearse`: any stack's whole life on the real engine, with nothing real behind it."""

from __future__ import annotations

import gc
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import yaml

from engine.engine import Engine
from engine.events import Result
from engine.paths import Paths
from engine.progress import Progress
from infra.errors import InputError, MachineError, Problem, TrainyardError
from infra.spec import Stack
from infra.targets.aws.spec.provider import AwsSpec
from infra.targets.azure.spec.provider import AzureSpec
from infra.targets.gcp.spec.provider import GcpSpec
from infra.targets.onprem.spec.provider import OnpremSpec
from rehearsal.azure import Subscription
from rehearsal.cloud import Cloud, Typed
from rehearsal.faults import Faults
from rehearsal.gcp import Project
from rehearsal.leaks import CREDENTIALS, SECRET, Leak, leaks_in, lines_of
from rehearsal.rehearse import OUTPUTS, Phase, Rehearsal, Stage, rehearse, stand_ins_of
from trainyard.find import finder
from trainyard.forms import Form
from trainyard.pool_changes import pool_changes
from trainyard.price import bill, show_price
from trainyard.report import Report, changes, failure
from trainyard.session import Session
from trainyard.up import ENGINE_PARTS

LINKS = (".venv", ".trainyard")
"""Parts of the clone that a rehearsal's own project folder has links to."""
PROGRAM = "program"
MADE, KUBECONFIG = "made", "kubeconfig"
"""In the rehearsal's own state folder: what the clouds have, and how a cluster that is there is reached."""
NOT_A_CLOUD = ("local", "onprem")
"""Kinds whose machines are bought nowhere."""


@dataclass(frozen=True)
class Assumption:
    """What a rehearsal takes as given, since nothing has measured it yet."""

    checkpoint_seconds: float | None = None
    """Time of a checkpoint, for the policy that holds it against the notice of spot machines."""


@dataclass(frozen=True)
class _Project:
    """A project folder of the rehearsal's own: the clone's program, and a copy of the stack file."""

    session: Session
    """The rehearsed stack, with all places apart."""
    policies: Path

    @property
    def file(self) -> Path:
        return self.session.stack_file

    def rewrite(self, data: Mapping[str, Any]) -> None:
        """Write the copy of the stack file anew."""
        self.file.write_text(yaml.safe_dump(dict(data), sort_keys=False))

    def read(self) -> dict[str, Any]:
        data: dict[str, Any] = yaml.safe_load(self.file.read_text())
        return data


@dataclass(frozen=True)
class _Outcome:
    """How an operation ended, and what it did to the pools."""

    changes: Mapping[str, int]
    seconds: float
    notes: tuple[str, ...]


@dataclass
class _Operations:
    """The engine on one stack, with the policies on."""

    engine: Engine
    project: _Project
    progress: Progress
    to_be_killed: bool = False
    """Whether it is to be killed in an operation: until then it saves its state at every step."""

    @property
    def stack(self) -> str:
        return self.project.session.stack_name

    def _outcome(self, result: Result) -> _Outcome:
        pool_types = self.project.session.target.pool_types
        return _Outcome(result.changes, result.seconds, tuple(pool_changes(result, pool_types)))

    def preview(self) -> _Outcome:
        return self._outcome(
            self.engine.preview(self.stack, self.progress, policy_packs=[self.project.policies])
        )

    def up(self) -> _Outcome:
        return self._up(self.project.policies)

    def _up(self, *policies: Path) -> _Outcome:
        saved_once = not self.to_be_killed
        return self._outcome(
            self.engine.up(self.stack, self.progress, policy_packs=policies, all_at_once=saved_once)
        )

    def refresh(self) -> _Outcome:
        return self._outcome(self.engine.refresh(self.stack, self.progress))

    def destroy(self) -> _Outcome:
        saved_once = not self.to_be_killed
        return self._outcome(self.engine.destroy(self.stack, self.progress, all_at_once=saved_once))

    def adopt(self) -> _Outcome:
        return self._outcome(self.engine.adopt(self.stack, self.progress))

    def lose(self) -> None:
        self.engine.forget(self.stack)

    def unprotect(self) -> _Outcome | None:
        """Without the policies: they refuse this, unless an exemption says who wants it and why."""
        if not self._is_protected:
            return None
        self._set_protection(on=False)
        return self._up()

    def protect(self) -> None:
        if self._is_protected:
            self._set_protection(on=True)

    @property
    def _is_protected(self) -> bool:
        """Whether the stack file asks for it, as its owner wrote it."""
        return getattr(self.project.session.stack.provider, "deletion_protection", False)

    def _set_protection(self, *, on: bool) -> None:
        data = self.project.read()
        data["config"]["trainyard:stack"]["provider"]["deletion_protection"] = on
        self.project.rewrite(data)

    def change(self) -> Mapping[str, int]:
        """Give the last pool that runs jobs twice its nodes: whole slices, and as many in each zone.

        What is reserved does not double, so without another the system pool does; nor do machines of one's
        own: those of the last leaf move to another spine.
        """
        data = self.project.read()
        pools = data["config"]["trainyard:stack"]["pools"]
        leaves = data["config"]["trainyard:stack"]["provider"].get("leaves")
        if leaves:
            leaves[-1]["spine"] = "another-spine"
            self.project.rewrite(data)
            return {"update": sum(len(nodes) for nodes in leaves[-1]["nodes"].values())}
        bought = [pool for pool in pools if pool["capacity"] in ("on-demand", "spot")]
        grown = bought or [pool for pool in pools if pool["capacity"] == "system"]
        grown[-1]["num_nodes"] *= 2
        self.project.rewrite(data)
        return {"update": 1}

    def resources(self) -> Sequence[Mapping[str, Any]]:
        return self.engine.resources(self.stack)

    def leaks(self) -> Sequence[Leak]:
        return leaks_left(self.project.session.paths)

    def kill(self) -> None:
        for child in psutil.Process().children(recursive=True):
            if child.name() == "pulumi":
                child.kill()
        self.to_be_killed = False


def leaks_left(paths: Paths) -> list[Leak]:
    """Return the secrets that can be read in a rehearsal's own project and state.

    What the clouds have, what a user brings, and the passphrase itself hold secrets by their nature.
    """
    passphrase = paths.engine / "passphrase"
    meant = {paths.state / MADE, paths.state / KUBECONFIG, passphrase}
    written = (file for folder in (paths.repository, paths.state) for file in folder.rglob("*"))
    left = (file for file in written if file.is_file() and not file.is_symlink())
    lines = lines_of(file for file in left if meant.isdisjoint((file, *file.parents)))
    return leaks_in(lines, {"the passphrase of the state": passphrase.read_text()})


def play(session: Session, faults: Faults, assumed: Assumption, *, adopts: bool = False) -> Rehearsal:
    """Rehearse the stack in folders of its own. Raises TrainyardError."""
    # What stands in for a cloud lives to the end; searching it for garbage took a sixth of the time.
    gc.set_threshold(100_000)
    _check_pool(session, faults)
    session.toolchain.ensure(*ENGINE_PARTS)
    with _apart(session, assumed) as project, ExitStack() as stack:
        apart = project.session
        stage = Stage(stand_ins_of(_clouds(apart, stack)), apart.paths.state / MADE, faults, adopts)

        def open_engine(attached: Mapping[str, str]) -> _Operations:
            settings = {
                "TRAINYARD_STACKS": str(apart.paths.stacks),
                **CREDENTIALS,
                **_kubeconfig(session.stack, apart.paths.state),
                **attached,
            }
            tools = Session(apart.stack_name, replace(session.paths, state=apart.paths.state))
            variables = {**tools.toolchain.environment(), **settings}
            engine = Engine(apart.paths, variables, finder(session, apart.paths.state / MADE))
            return _Operations(engine, project, session.progress, to_be_killed=bool(faults.crash_after))

        return rehearse(open_engine, stage, lambda phase: session.progress.said(_done(phase)))


def _done(phase: Phase) -> str:
    told = "".join(f"\n  {note}" for note in phase.notes)
    return f"✓ {phase.name}: {changes(phase)} ({phase.seconds:.1f} s){told}"


def _kubeconfig(stack: Stack, folder: Path) -> dict[str, str]:
    """A cluster that is there already is reached through a context: the rehearsal has one of its own."""
    if not isinstance(stack.provider, OnpremSpec):
        return {}
    name = stack.provider.cluster.context
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": {"server": "https://rehearsal.invalid:6443"}}],
        "users": [{"name": name, "user": {"token": f"{SECRET}-token"}}],
    }
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / KUBECONFIG
    file.write_text(yaml.safe_dump(config))
    return {"KUBECONFIG": str(file)}


@contextmanager
def _apart(session: Session, assumed: Assumption) -> Iterator[_Project]:
    """Make the project folder, and remove it with all that the rehearsal has left."""
    with tempfile.TemporaryDirectory(prefix="trainyard-rehearsal-") as name:
        folder = Path(name) / "project"
        stacks = folder / "stacks"
        stacks.mkdir(parents=True)
        for link in LINKS:
            (folder / link).symlink_to(session.paths.repository / link)
        # A folder, and no link: the engine works in it, and policies look for stack files from there upwards.
        (folder / PROGRAM).mkdir()
        (folder / PROGRAM / "__main__.py").symlink_to(session.paths.repository / "infra" / "__main__.py")
        project = yaml.safe_load((session.paths.repository / "Pulumi.yaml").read_text())
        (folder / "Pulumi.yaml").write_text(yaml.safe_dump({**project, "main": PROGRAM}))
        shutil.copy(session.stack_file, stacks)
        _put_measurement(session, stacks, assumed)
        paths = replace(session.paths, repository=folder, state=Path(name) / "state", stacks_folder=stacks)
        yield _Project(Session(session.stack_name, paths, session.console), session.paths.policies)


def _put_measurement(session: Session, stacks: Path, assumed: Assumption) -> None:
    """Take the stack's measured checkpoint along; an assumption, where there is none, stays in here."""
    name = f"checkpoint.{session.stack_name}.json"
    measured = session.paths.stacks / name
    if measured.exists():
        shutil.copy(measured, stacks)
    elif assumed.checkpoint_seconds is not None:
        today = datetime.now(UTC).date().isoformat()
        (stacks / name).write_text(json.dumps({"seconds": assumed.checkpoint_seconds, "measured": today}))


def _clouds(session: Session, stack: ExitStack) -> dict[str, Cloud]:
    """The cloud behind the stack's target."""
    provider = session.stack.provider
    if isinstance(provider, AwsSpec):
        try:
            from rehearsal.aws.account import Account  # moto and boto3 take seconds to import
            from rehearsal.aws.there import There
        except ModuleNotFoundError as error:
            raise MachineError([_lacking(str(error.name), "aws")]) from error
        brought = There(**_brought(session.stack, provider))
        return {"aws": stack.enter_context(Account(provider.region, brought))}
    if isinstance(provider, GcpSpec):
        if find_spec("googleapiclient") is None:
            raise MachineError([_lacking("googleapiclient", "gcp")])
        return {"gcp": Project(provider.project, provider.region)}
    if isinstance(provider, AzureSpec):
        return {"azure-native": Subscription(provider.subscription)}
    return {} if provider.kind in NOT_A_CLOUD else {provider.kind: Typed(OUTPUTS)}


def _brought(stack: Stack, spec: AwsSpec) -> dict[str, Any]:
    """What the stack file says is in the account already."""
    network, cluster, filesystem = spec.network.existing, spec.existing_cluster, spec.filesystem.existing
    groups = [each.security_group for each in (cluster, filesystem) if each]
    return {
        "vpc": network.id if network else "",
        "subnets": network.subnets if network else {},
        "groups": groups if network else [],
        "cluster": cluster.name if cluster else "",
        "bucket": stack.storage.object_store.bucket if spec.existing_bucket else "",
    }


def _lacking(module: str, extra: str) -> Problem:
    fix = f"install the packages of requirements/{extra}.txt (the extra `{extra}`)"
    return Problem(module, "not installed", f"the extra `{extra}`", fix)


def _check_pool(session: Session, faults: Faults) -> None:
    """Raise InputError where the pool of a fault is none of the stack, or is bought nowhere."""
    pools = [pool.name for pool in session.stack.pools]
    if not faults.no_capacity:
        return
    kind = session.stack.provider.kind
    if kind in NOT_A_CLOUD:
        got, allowed = f"a stack of kind {kind}", "a stack whose machines are bought"
        raise InputError([Problem("--insufficient-capacity", got, allowed, "choose a stack of a cloud")])
    if faults.no_capacity not in pools:
        fix = "write the name of one of these"
        problem = Problem("--insufficient-capacity", repr(faults.no_capacity), ", ".join(pools), fix)
        raise InputError([problem])


def run_rehearsal(
    session: Session, faults: Faults, assumed: Assumption, form: Form, *, adopts: bool = False
) -> None:
    """Rehearse the stack, and print how it went."""
    session.stack  # noqa: B018 -- wrong input ends here
    price = bill(session.stack, datetime.now(UTC).date())
    try:
        played = play(session, faults, assumed, adopts=adopts)
        report = Report(session.stack_name, played, _told(session, assumed))
    except TrainyardError as error:
        if form == "markdown":  # for whoever reads the comment; the command fails as ever
            sys.stdout.write(failure(session.stack_name, error) + price.markdown())
        raise
    if form == "json":
        sys.stdout.write(json.dumps({**report.data(), "price": price.data()}, indent=1) + "\n")
    elif form == "markdown":
        sys.stdout.write(report.markdown() + "\n" + price.markdown())
    else:
        report.show(session.console)
        show_price(session.stack, form, session.console)


def _told(session: Session, assumed: Assumption) -> str:
    """Say what was assumed, where the stack has no measurement of its own."""
    measured = (session.paths.stacks / f"checkpoint.{session.stack_name}.json").exists()
    if measured or assumed.checkpoint_seconds is None:
        return ""
    return (
        f"that a checkpoint takes {assumed.checkpoint_seconds:g} s, which was assumed: `up` is refused until"
        f" stacks/checkpoint.{session.stack_name}.json has a measured time"
    )
