"""`Engine`: runs `pulumi` on a project's stacks (up, preview, refresh, destroy, adopt, …), and recovers a
stack after a killed run. A failure is raised with the problems that `pulumi` reported.
"""

import json
import os
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from engine import adoption, plugins, recovery
from engine.backends import Backend, FileBackend, RemoteBackend
from engine.events import NUM_SHOWN, Advice, EventReporter, OperationResult, label
from engine.paths import Paths
from engine.process import EngineProcess, ProcessResult
from engine.progress import Progress
from engine.recovery import MARKER, Finder
from engine.settings import FOR_ANY_PULUMI
from infra.errors import GO_ON, ExitCode, InputError, Problem, TrainyardError

SETTINGS = {
    **FOR_ANY_PULUMI,
    # After a killed `up` objects belong to the field manager of that run, and have the API server's
    # defaults: a second apply would conflict. The look at the cluster has proven that they are the stack's.
    "PULUMI_K8S_ENABLE_PATCH_FORCE": "true",
    # A copy of the state before each of some 300 writes takes a tenth of an `up`.
    "PULUMI_DIY_BACKEND_DISABLE_CHECKPOINT_BACKUPS": "true",
    "PULUMI_ENABLE_STREAMING_JSON_PREVIEW": "true",
    # Plugins start in the program's folder, whose `platform` must not shadow the standard library's.
    "PYTHONSAFEPATH": "1",
}
WRITE_STATE_ONCE = {"PULUMI_EXPERIMENTAL": "true", "PULUMI_SKIP_CHECKPOINTS": "true"}
"""Variables that make the engine write its state once, at the end; a killed run leaves the state as it
was."""
PARALLEL = "--parallel=64"
"""Number of parallel operations. With the engine's default of four per core, all soon wait for
controllers."""

GO_ON_WITH_OTHERS = "--continue-on-error"
"""Option to continue after a failure: a pool without capacity blocks only resources that depend on the
pool."""
BUCKETS = ("azblob", "gs", "s3")
"""URL schemes of states that several hosts share."""
_NAMES_WHAT_IS_GONE = "snapshot integrity failure"
"""In the engine's errors (pkg/resource/deploy/snapshot.go); `state repair` drops such references."""


class Engine:
    """The engine on the project in `paths.repository`, with its state in `paths.engine`.

    `environment` has the toolchain's variables: PATH, PULUMI_HOME, the backend and its passphrase file.
    `find` searches the cloud for resources that a killed engine has created but not recorded; `advise`
    returns the next step after a cloud's refusal.
    """

    def __init__(
        self,
        paths: Paths,
        environment: Mapping[str, str],
        find: Finder = lambda _: None,
        advise: Advice = lambda _: "",
    ) -> None:
        self._paths = paths
        self._find = find
        self._advise = advise
        self._environment = {
            **os.environ,
            "TRAINYARD_STACKS": str(paths.stacks.absolute()),
            **environment,
            **SETTINGS,
        }
        project = yaml.safe_load((paths.repository / "Pulumi.yaml").read_text())
        self._project: dict[str, Any] = project
        self._backend = self._open_backend()

    @property
    def project(self) -> str:
        """Name of the Pulumi project."""
        return str(self._project["name"])

    @property
    def backend_url(self) -> str:
        """URL of the state backend, in Pulumi's format."""
        return self._environment.get("PULUMI_BACKEND_URL") or self._paths.engine.as_uri()

    @property
    def is_on_host(self) -> bool:
        """Whether the states are in this host's folder, and nowhere else."""
        return self.backend_url == self._paths.engine.as_uri()

    @property
    def passphrase(self) -> Path | None:
        """File with the passphrase of the states' secrets; None where the user gives one."""
        file, given = self._paths.engine / "passphrase", self._environment
        is_ours = given.get("PULUMI_CONFIG_PASSPHRASE_FILE") == str(file)
        return file if is_ours and "PULUMI_CONFIG_PASSPHRASE" not in given else None

    def _open_backend(self) -> Backend:
        if self.is_on_host:
            return FileBackend(self._paths.engine, self._project["name"])
        return RemoteBackend(self._ask)

    def exists(self, stack: str) -> bool:
        """Whether the stack was ever created, by its backend."""
        return self._backend.exists(stack)

    def up(
        self,
        stack: str,
        progress: Progress,
        *,
        policy_packs: Sequence[Path] = (),
        writes_state_once: bool = False,
        refresh: bool = False,
    ) -> OperationResult:
        """Create the resources that the program declares. Raises TrainyardError with all errors.

        With `refresh` the state is compared with what exists first, and what is gone is created again.

        With `writes_state_once` the state is written only at the end, which takes a fifth of the time. Use it
        for a stack that is created from nothing, and would start again after a kill.
        """
        flags = ["--yes", "--skip-preview", PARALLEL, GO_ON_WITH_OTHERS, *self._packs(policy_packs)]
        flags += ["--refresh"] if refresh else []
        return self._operate(stack, "up", flags, progress, WRITE_STATE_ONCE if writes_state_once else {})

    def preview(
        self, stack: str, progress: Progress, *, policy_packs: Sequence[Path] = (), refresh: bool = False
    ) -> OperationResult:
        """Show what an `up`, with the same `refresh`, would do, and evaluate it by the policy packs."""
        flags = [*self._packs(policy_packs), *(["--refresh"] if refresh else [])]
        return self._operate(stack, "preview", flags, progress)

    def refresh(self, stack: str, progress: Progress) -> OperationResult:
        """Read every resource, and update the state."""
        return self._operate(stack, "refresh", ["--yes", "--skip-preview"], progress)

    def destroy(self, stack: str, progress: Progress, *, writes_state_once: bool = False) -> OperationResult:
        """Delete every resource; the (empty) stack remains.

        Raises TrainyardError, before anything is deleted, where something is protected.

        With `writes_state_once` the state is written at the end only, which takes a fifth of the time: for
        a stack of which one resource deletes nearly all others, and can be deleted twice.
        """
        variables = WRITE_STATE_ONCE if writes_state_once else {}
        flags = ["--yes", "--skip-preview", GO_ON_WITH_OTHERS]
        self.check_unprotected(stack)
        return self._operate(stack, "destroy", flags, progress, variables)

    def check_unprotected(self, stack: str) -> None:
        """Raise TrainyardError if the state has protected resources.

        The engine refuses each of them when it would delete it, which is after all that depends on it.
        """
        if protected := self._backend.protected(stack) if self.exists(stack) else []:
            raise TrainyardError([_protected(stack, protected)], ExitCode.WRONG_INPUT)

    def outputs(self, stack: str, *, show_secrets: bool = False) -> dict[str, Any]:
        """The stack's outputs, secrets as `[secret]` unless asked for."""
        flags = ["--show-secrets"] if show_secrets else []
        text = self._ask(stack, "stack", "output", "--json", "--stack", stack, *flags)
        outputs: dict[str, Any] = json.loads(text)
        return outputs

    def resources(self, stack: str) -> list[dict[str, Any]]:
        """The resources of the engine's state, each after those that it needs; secrets are encrypted."""
        deployment = json.loads(self.export(stack))["deployment"]
        resources: list[dict[str, Any]] = deployment.get("resources") or []
        return resources

    def export(self, stack: str) -> str:
        """The whole state as JSON; secrets are encrypted."""
        return self._ask(stack, "stack", "export", "--stack", stack)

    def restore(self, stack: str, exported: str) -> None:
        """Give a stack without resources an exported state, which says how its secrets are encrypted."""
        self.recover(stack)
        self._config_file(stack, self._environment)
        self._take_in(stack, exported, ())

    def is_empty(self, stack: str) -> bool:
        """Whether the state has no resources: before the first `up`, after a `destroy`, or after its loss."""
        return self._backend.is_empty(stack)

    def cancel(self, stack: str) -> None:
        """Drop the lock of an engine that is dead. Raises TrainyardError while one runs."""
        if [lock for lock in self._backend.locks(stack) if recovery.is_stale(lock)]:
            self._ask(stack, "cancel", "--yes", "--stack", stack)

    def locks(self, stack: str) -> list[dict[str, Any]]:
        """Return the locks of the stack in any backend, by an operation on nothing that needs the lock."""
        nothing = f"urn:pulumi:{stack}::{self.project}::trainyard:index:Nothing::nothing"
        config = str(config_file(self._paths, stack))
        try:
            self._ask(
                stack, "refresh", "--yes", "--target", nothing, "--stack", stack, "--config-file", config
            )
        except TrainyardError as error:
            message = error.problems[0].got
            if locks := recovery.locks_in(message):
                return locks
            if nothing not in message:
                raise
        return []

    def tag(self, stack: str, name: str) -> str:
        """Return a tag of the stack; empty where it has none."""
        tags: dict[str, str] = json.loads(self._ask(stack, "stack", "tag", "ls", "--json", "--stack", stack))
        return tags.get(name, "")

    def release(self, stack: str) -> None:
        """Drop the stack's locks, whoever holds them, and settle what their engines have left."""
        self._ask(stack, "cancel", "--yes", "--stack", stack)
        self.recover(stack)

    def recover(self, stack: str) -> None:
        """Clean up after a killed engine of this stack; costs nothing after a normal exit.

        Engines of other commands, and of other stacks, are not touched.
        Every operation begins with this; so must any code that changes files or resources of the engine.
        """
        recovery.end_orphans(self._paths.engine, stack)
        recovery.delete_kubeconfigs(self._paths.engine / "tmp")
        plugins.install(Path(self._environment["PULUMI_HOME"]), self._paths.bin)
        self._backend.mend()
        self.cancel(stack)
        if self.exists(stack) and self._backend.has_pending_operations(stack):
            self._take_in(stack, *recovery.settled(self.export(stack), self._find))

    def unprotect(self, stack: str, urn: str) -> None:
        """Let the engine replace or delete a resource once; the program's next `up` protects it again."""
        self._ask(stack, "state", "unprotect", urn, "--yes", "--stack", stack)

    def forget(self, stack: str) -> None:
        """Drop the stack's state, and nothing of what exists."""
        self._ask(stack, "stack", "rm", "--force", "--yes", "--preserve-config", "--stack", stack)

    def disown(self, stack: str, urns: Collection[str]) -> None:
        """Drop resources from the state: they remain, and are others' from now on."""
        self._take_in(stack, adoption.disowned(self.export(stack), urns), ())

    def adopt(self, stack: str, progress: Progress) -> OperationResult:
        """Import existing resources that an `up` would create into the state; its changes are `adopt`.

        Found resources determine where to look for others (the subnets of a VPC): the search is repeated
        until it finds no more.
        """
        started = time.monotonic()
        taken = 0
        while True:
            announced = self.preview(stack, progress).announced
            text, found = adoption.adopted(self.export(stack), announced, self._find)
            if not found:
                return OperationResult(stack, "adopt", {"adopt": taken}, time.monotonic() - started)
            self._take_in(stack, text, found)
            taken += len(found)
            for urn in found:
                progress.log(f"adopted  {label(urn)}")

    def _take_in(self, stack: str, text: str, found: Sequence[str]) -> None:
        """Replace the state, and refresh the found resources."""
        self._ask(stack, "stack", "import", "--stack", stack, given=text)
        if found:
            targets = [part for urn in found for part in ("--target", urn)]
            config = str(self._config_file(stack, self._environment))
            flags = ["--yes", "--skip-preview", "--config-file", config]
            self._ask(stack, "refresh", "--stack", stack, *flags, *targets)

    def _operate(
        self,
        stack: str,
        operation: str,
        flags: Sequence[str],
        progress: Progress,
        variables: Mapping[str, str] = {},
    ) -> OperationResult:
        started = time.monotonic()
        self.recover(stack)
        with self._run(stack) as environment, progress.task(f"{operation} {stack}") as task:
            config = self._config_file(stack, environment)
            if operation != "preview":
                self._backend.keep(stack, self._paths.engine / "former" / stack)
            report = EventReporter(progress, task, self._advise)
            words = "interrupted: finishing current operations; interrupt again to stop at once"
            process = EngineProcess(
                self._paths.repository, {**environment, **variables}, lambda: progress.log(words)
            )
            arguments = [operation, "--json", "--stack", stack, "--config-file", str(config), *flags]
            with report.logging_what_lasts():
                ended = process.run(arguments, report.take)
            if ended.code < 0:
                recovery.end_run(Path(environment[MARKER]))
            try:
                _raise_for(ended, report, f"{operation} {stack}")
            except TrainyardError as error:
                self._repair(stack, error, progress)
                raise
        return OperationResult(
            stack,
            operation,
            report.changes,
            time.monotonic() - started,
            is_preview=operation == "preview",
            announced=tuple(report.announced),
            steps=tuple(report.steps),
        )

    def _repair(self, stack: str, error: TrainyardError, progress: Progress) -> None:
        """Mend a state that names what is gone, or each further operation fails.

        The engine writes one when it goes on with others after an error, and deletes what was replaced while
        resources that depended on it were not updated.
        """
        if any(_NAMES_WHAT_IS_GONE in each.got for each in error.problems):
            self._ask(stack, "state", "repair", "--yes", "--stack", stack)
            progress.log(f"the state of {stack} named resources that are gone; it is repaired")

    def _config_file(self, stack: str, environment: Mapping[str, str]) -> Path:
        """Return the engine's copy of the stack file; a stack that does not exist yet is initialized."""
        folder = self._paths.engine / "config"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self.exists(stack):
            # `stack init` requires a project file, and writes the stack's salt beside it.
            project = {"name": self._project["name"], "runtime": "python"}
            (folder / "Pulumi.yaml").write_text(yaml.safe_dump(project))
            options = ["--no-select", "--cwd", str(folder), *self._secrets(stack)]
            self._ask(stack, "stack", "init", stack, *options)
        return config_file(self._paths, stack)

    def _secrets(self, stack: str) -> list[str]:
        """Return the options with the stack's secrets provider: that of its file, else of the environment.

        Raises InputError for a bucket without one: no other host has the passphrase of this one.
        """
        file = self._paths.stack_file(stack)
        declared = _encryption(file.read_text()).get("secretsprovider")
        provider = declared or self._environment.get("SECRETS_PROVIDER")
        is_shared = urlsplit(self.backend_url).scheme in BUCKETS
        if is_shared and self.passphrase and not provider:
            got = f"none, for a new stack in {self.backend_url}"
            fix = "write what `trainyard stack state-bucket` prints, or set PULUMI_CONFIG_PASSPHRASE"
            allowed = "a key: awskms://…, gcpkms://…, azurekeyvault://…"
            raise InputError([Problem("secretsprovider", got, allowed, fix, str(file))])
        return ["--secrets-provider", provider] if provider else []

    @contextmanager
    def _run(self, stack: str) -> Iterator[dict[str, str]]:
        """The environment of one run of the engine, with a temporary folder that is deleted after it."""
        with recovery.private_folder(self._paths.engine, stack) as folder:
            yield {**self._environment, MARKER: str(folder), "TMPDIR": str(folder)}

    def _ask(self, stack: str, *arguments: str, given: str = "") -> str:
        """Run a short command about a stack and return its output. Raises TrainyardError."""
        with self._run(stack) as environment:
            ended = subprocess.run(
                ["pulumi", "--non-interactive", *arguments],
                cwd=self._paths.repository,
                env=environment,
                input=given,
                capture_output=True,
                text=True,
                check=False,
            )
        if ended.returncode != 0:
            raise TrainyardError([_failed(f"pulumi {' '.join(arguments[:2])}", ended.stderr.strip())])
        return ended.stdout

    def _packs(self, policy_packs: Sequence[Path]) -> list[str]:
        """Return the options for each policy pack, with the organisation's configuration."""
        given = self._paths.organisation
        config = ["--policy-pack-config", str(given)] if given else []
        return [part for pack in policy_packs for part in ("--policy-pack", str(pack), *config)]


_WRITTEN = frozenset({"encryptionsalt", "encryptedkey"})
"""Keys that the engine writes into a new stack's configuration: salt, or encrypted data key."""
_ENCRYPTION = ("secretsprovider", *sorted(_WRITTEN))


def config_file(paths: Paths, stack: str) -> Path:
    """Copy the stack file to where the engine may write the salt of its secrets into it; return the copy."""
    copy = paths.engine / "config" / f"Pulumi.{stack}.yaml"
    copy.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    text = paths.stack_file(stack).read_text()
    known, declared = (_encryption(each) for each in (copy.read_text() if copy.exists() else "", text))
    if known and not declared.keys() & _WRITTEN:  # `pulumi` by hand may have written other settings
        text = f"{without_encryption(text).rstrip()}\n{yaml.safe_dump(known | declared)}"
    copy.write_text(text)
    return copy


def _encryption(config: str) -> dict[str, str]:
    """Return the keys in a stack's configuration that configure the encryption of secrets."""
    settings = yaml.safe_load(config) or {}
    return {key: str(settings[key]) for key in _ENCRYPTION if settings.get(key)}


def without_encryption(config: str) -> str:
    """Return a stack's configuration for a separate state: no key or salt of another one."""
    lines = config.splitlines(keepends=True)
    return "".join(line for line in lines if line.partition(":")[0] not in _ENCRYPTION)


def _raise_for(ended: ProcessResult, report: EventReporter, what: str) -> None:
    if ended.interrupted:
        resume = "run the same command again: it continues from here"
        problem = Problem(what, "interrupted", "completion", resume)
        raise TrainyardError([problem], ExitCode.INTERRUPTED)
    if ended.code != 0:
        how = f"killed by signal {-ended.code}" if ended.code < 0 else f"exit code {ended.code}"
        raise TrainyardError(report.specific() or [_failed(what, ended.errors or how)])


def _protected(stack: str, urns: Sequence[str]) -> Problem:
    shown = ", ".join(map(label, urns[:NUM_SHOWN])) + (", …" if len(urns) > NUM_SHOWN else "")
    return Problem(
        path=f"destroy {stack}",
        got=f"protected resources ({len(urns)}: {shown}); nothing was deleted",
        allowed="a stack without protected resources",
        fix="set target.deletion_protection: false, bring the stack up, then run this command again",
    )


def _failed(what: str, errors: str) -> Problem:
    return Problem(what, errors, "completion without an error", GO_ON)
