"""`Session`: everything that a command needs of one stack, loaded when first used: stack file, engine,
cluster, API client; also the stack's lock.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from engine.locks import LockHeldError, hold
from engine.paths import Paths
from engine.progress import Progress, for_stream
from infra.common import names
from infra.errors import InputError, Problem, TrainyardError
from infra.stackfile.source import FLEET_KEY, holds
from infra.targets.kubeconfig import namespace_of
from trainyard.stack.state import backend_variables

if TYPE_CHECKING:
    from rich.console import Console

    from engine.engine import Engine
    from infra.clients.kubernetes import ApiServer
    from infra.stackfile import Fleet, Stack
    from infra.targets.target import Target
    from local.cluster.cluster import EmbeddedCluster
    from local.cluster.layout import Layout
    from local.toolchain import Toolchain
    from trainyard.stack.packages import Packages


class Session:
    """One command's view of one stack; values that take time are created on first use."""

    def __init__(
        self,
        stack_name: str,
        paths: Paths | None = None,
        console: Console | None = None,
        *,
        context: str = "",
        team: str = "",
    ) -> None:
        """Take the words of a command line.

        Args:
            stack_name: name of the stack; empty: the folder's only one, else `local`.
            paths: paths of the state and tools; None: those of the environment.
            console: console for results; None: the standard output.
            context: context of the user's kubeconfig that reaches the stack's cluster.
            team: team that the command is limited to; empty: all that the user may see.
        """
        self.context = context
        self.team = team
        self.paths = paths or Paths.from_environment()
        self.stack_name = stack_name or self.paths.usual_stack()
        if console is not None:
            self.console = console

    @cached_property
    def stack(self) -> Stack:
        """Read and check the stack file.

        Raises:
            InputError: with everything that is wrong in it.
        """
        from infra.stackfile import load

        if not self.stack_file.exists():
            raise InputError([self._no_such_stack()])
        if self.is_fleet:
            raise InputError([self._a_fleet()])
        return load(self.stack_file)

    @property
    def target(self) -> Target:
        """The description of the stack's target."""
        from infra.common.target_registry import target_of

        return target_of(self.stack.target.kind)

    @property
    def packages(self) -> Packages:
        """The packages that the stack's target needs."""
        from trainyard.stack.packages import Packages

        return Packages(self.target.packages, self.paths)

    @property
    def is_fleet(self) -> bool:
        """Whether the file declares a fleet, which joins stacks, and no cluster."""
        return holds(self.stack_file, FLEET_KEY)

    @cached_property
    def fleet(self) -> Fleet:
        """Read and check the fleet's file.

        Raises:
            InputError: with everything that is wrong in it.
        """
        from infra.stackfile import load_fleet

        return load_fleet(self.stack_file)

    @property
    def stack_file(self) -> Path:
        return self.paths.stack_file(self.stack_name)

    @cached_property
    def console(self) -> Console:
        """The console for results."""
        from rich.console import Console

        return Console()

    @cached_property
    def progress(self) -> Progress:
        return for_stream(sys.stderr)

    @cached_property
    def toolchain(self) -> Toolchain:
        from local.toolchain import Toolchain, load_versions

        return Toolchain(self.paths, load_versions(), self.progress)

    @cached_property
    def engine(self) -> Engine:
        from engine.engine import Engine
        from trainyard.stack.find import finder

        return Engine(self.paths, self.environment(), finder(self.stack), self.target.advise)

    @cached_property
    def project_engine(self) -> Engine:
        """The engine on the project of the stack file: a program that uses the package, or our own."""
        from engine.engine import Engine
        from trainyard.stack.find import finder

        folder = self.paths.stacks.parent
        if folder == self.paths.repository or not (folder / "Pulumi.yaml").exists():
            return self.engine
        paths, environment = replace(self.paths, repository=folder), self.environment()
        return Engine(paths, environment, finder(self.stack))

    def environment(self) -> dict[str, str]:
        """The engine's variables; the state of an embedded cluster is where the cluster is."""
        local = self.toolchain.environment()
        return local if self.is_embedded else backend_variables(self.stack_file, local)

    @cached_property
    def cluster(self) -> EmbeddedCluster:
        """The embedded cluster as it was last declared.

        Raises:
            TrainyardError: the cluster was never started, or was removed.
        """
        from local.cluster.cluster import EmbeddedCluster

        return EmbeddedCluster.load(
            self.stack.name, paths=self.paths, toolchain=self.toolchain, progress=self.progress
        )

    @property
    def is_embedded(self) -> bool:
        """Whether the stack's cluster is made of processes of this host."""
        return self.has_file and not self.is_fleet and self.stack.target.on_host is not None

    @property
    def is_of_others(self) -> bool:
        """Whether the stack's cluster exists: by a context of the user's, or in a cloud's account."""
        from infra.stackfile.target import ContextCluster

        target = self.stack.target
        is_named = isinstance(getattr(target, "cluster", None), ContextCluster)
        return is_named or getattr(target, "existing_cluster", None) is not None

    @property
    def is_on_host(self) -> bool:
        """Whether the cluster that is asked is this host's: its kubeconfig and volumes are files here."""
        return not self.context and self.is_embedded

    @property
    def is_searchable(self) -> bool:
        """Whether the stack's resources are in an account that can be searched (`trainyard.stack.find`)."""
        return bool(self.target.account)

    def check_host(self) -> None:
        """Check that this host can start an embedded cluster.

        Raises:
            HostError: the message has all that prevents it: no root, no space, addresses that are taken, ….
        """
        from trainyard.stack.host import check_host

        check_host(self.stack, self.paths)

    @property
    def cluster_exists(self) -> bool:
        """Whether an embedded cluster of this stack was started and not removed since."""
        return self._layout.config.exists()

    @cached_property
    def api(self) -> ApiServer:
        """The cluster's API server.

        Raises:
            TrainyardError: there is no cluster, it cannot be reached, or does not let the user in.
        """
        from trainyard.stack.access import connect

        return connect(self)

    @property
    def namespaces(self) -> list[str]:
        """Namespaces of the stack's teams, or the context's own where there is no stack file.

        Users may see no others. With a named team: that team's.
        """
        if self.team:
            return [names.team_namespace(self.team)]
        if self.has_file:
            return [names.team_namespace(team.name) for team in self.stack.teams]
        return [found] if self.context and (found := namespace_of(self.context)) else []

    @property
    def has_file(self) -> bool:
        """Whether there is a stack file: with a context, some commands need none."""
        return self.stack_file.exists()

    @property
    def declared_stack(self) -> Stack | None:
        """The stack, where its file is here; None where only the cluster of a context knows it."""
        return self.stack if not self.context and self.has_file and not self.is_fleet else None

    @property
    def guide(self) -> str:
        """The page about the stack's target."""
        return f"docs/{self.stack.target.kind}.md" if self.has_file else "docs/jobs.md"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig of the cluster (0600)."""
        return self._layout.kubeconfig

    @property
    def audit(self) -> Path:
        """Folder of the embedded cluster's audit log."""
        return self._layout.audit

    @property
    def _layout(self) -> Layout:
        from local.cluster.layout import Layout
        from local.cluster.privileges import check_privileges

        if self.is_embedded:
            check_privileges()  # only root can read the cluster's folder
        return Layout(self.paths.cluster_run(self.stack.name))

    def run_root(self, team: str, job: str) -> Path:
        """Folder of a job's runs on this host, which pods see below the checkpoint mount."""
        return self.paths.cluster_data(self.stack.name) / "checkpoints" / team / job

    def _no_such_stack(self) -> Problem:
        from trainyard.stack.access import SIGN_IN

        if known := ", ".join(self.paths.stack_names()):
            return Problem(
                "--stack", self.stack_name, known, f"name one of these, or write {self.stack_file}"
            )
        got, fix = f"no stack file in {self.paths.stacks}", f"`trainyard new TEMPLATE`; {SIGN_IN}"
        return Problem("--stack", got, "a stack file, or a context of your kubeconfig", fix)

    def _a_fleet(self) -> Problem:
        return Problem(
            path="--stack",
            got=f"{self.stack_name}, which is a fleet: it has no cluster",
            allowed="a stack, or `stack validate`",
            fix=f"use plain Pulumi: pulumi up -s {self.stack_name} --policy-pack policies (docs/fleet.md)",
        )


def next_run(run_root: Path) -> str:
    """Name the run to continue: the newest that has not finished, else a new one.

    Runs are numbered folders, so that what `down` retained is never written over.
    """
    names = (path.name.removeprefix("run-") for path in run_root.glob("run-*") if path.is_dir())
    numbers = [int(name) for name in names if name.isdecimal()]  # a job may have created other folders
    newest = max(numbers, default=0)
    unfinished = newest and not (run_root / f"run-{newest:03d}" / "final.json").exists()
    return f"run-{newest if unfinished else newest + 1:03d}"


@contextmanager
def one_at_a_time(paths: Paths, stack: str) -> Iterator[None]:
    """Hold the stack's lock: no two commands that change it, or its job, run at once.

    Raises:
        TrainyardError: another command holds it.
    """
    with _locked(paths.state / f"{stack}.lock", f"stack {stack}"):
        yield


@contextmanager
def planned_by_one(paths: Paths, stack: str) -> Iterator[None]:
    """Hold the lock of a stack's plan: it is not previewed while its resources change.

    It can be previewed while an `up` follows its job.

    Raises:
        TrainyardError: another command holds it.
    """
    with _locked(paths.state / f"{stack}.plan.lock", f"resources of stack {stack}"):
        yield


@contextmanager
def _locked(file: Path, what: str) -> Iterator[None]:
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with hold(file):
            yield
    except LockHeldError as held:
        fix = "wait for it, or stop it with Ctrl-C"
        raise TrainyardError([Problem(what, f"held by {held}", "one command at a time", fix)]) from None
