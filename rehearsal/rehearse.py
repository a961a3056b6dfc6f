"""Runs a stack's whole lifecycle on the real Pulumi engine with fake providers, and checks each phase.

It needs no credentials and no network, and creates nothing. Each phase has an expected result, so that a
program that never converges, or does not delete a resource, fails here and not in a cloud.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from infra.errors import GO_ON, Problem, TrainyardError
from rehearsal.cloud import Cloud, Kubernetes, Own
from rehearsal.fake_provider import FakeProvider
from rehearsal.faults import Faults, Injector, RaisedRefusal
from rehearsal.leaks import Leak, kinds_in

ANY_VERSION = "999.0.0"
"""Version newer than any that an SDK requires, since one fake serves packages of many versions."""


class Outcome(Protocol):
    """Result of one operation of the engine."""

    @property
    def changes(self) -> Mapping[str, int]:
        """Number of resources by operation: `create`, `same`, …."""

    @property
    def seconds(self) -> float:
        """Duration of the operation."""

    @property
    def notes(self) -> Sequence[str]:
        """Further notes on it, a line each."""


class Operations(Protocol):
    """Operations of the engine on one stack, with the policy pack."""

    def preview(self) -> Outcome: ...
    def up(self) -> Outcome: ...
    def refresh(self) -> Outcome: ...
    def destroy(self) -> Outcome: ...

    def adopt(self) -> Outcome:
        """Take into the state what exists already; its `changes` count that as `adopt`."""

    def delete_state(self) -> None:
        """Delete the state, as a loss of the backend would."""

    def unprotect(self) -> Outcome | None:
        """Take the protection from deletion off; None where the stack has none."""

    def request_protection(self) -> None:
        """Put the protection back into the stack file, where it was taken off."""

    def change(self) -> Mapping[str, int]:
        """Change the stack file as its owner would; return what `up` must then do besides `same`."""

    def resources(self) -> Sequence[Mapping[str, Any]]:
        """The engine's state: urn, type, dependencies, retainOnDelete, …."""

    def leaks(self) -> Sequence[Leak]:
        """Readable secrets in any file that the engine and the program have written."""

    def kill(self) -> None:
        """End the engine at once, as a power cut does."""


@dataclass(frozen=True)
class Phase:
    """One phase with the expected result."""

    name: str
    changes: Mapping[str, int]
    seconds: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refused:
    """A refusal by the cloud, with the next step that the user was given."""

    name: str
    message: str
    fix: str
    source: str


@dataclass(frozen=True)
class Rehearsal:
    """Results of a completed rehearsal."""

    phases: tuple[Phase, ...]
    created: tuple[str, ...]
    """URNs in the order of their creation."""
    retained: tuple[str, ...] = ()
    """URNs that remain when the stack is destroyed, as the program requires."""
    happened: tuple[str, ...] = ()
    """Requested faults that happened."""
    unproven: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Property that no fake could verify → types of resources."""
    refused: tuple[Refused, ...] = ()
    """Requested refusals that the stack triggered: the next operation continued."""
    survived: tuple[str, ...] = ()
    """Requested refusals that nothing triggered: the stack makes no such request."""


@dataclass(frozen=True)
class FakeProviders:
    """The fakes that replace a stack's providers, and the faults that they inject."""

    clouds: Mapping[str, Cloud]
    """Package → fake cloud behind its provider; other packages accept any input."""
    folder: Path
    """Folder in which the fakes store existing resources."""
    faults: Faults = field(default_factory=Faults)
    adopts: bool = False
    """Whether the state is deleted after `up` and rebuilt, and the stack comes back after its `destroy`."""


Open = Callable[[Mapping[str, str]], Operations]
"""Function that opens an engine with the variables that attach it to the fakes."""


class _RehearsalRun:
    """The phases, one after the other."""

    def __init__(self, engine: Operations, injector: Injector, seen: Callable[[Phase], None]) -> None:
        self.engine = engine
        self.phases: list[Phase] = []
        self.refused: list[Refused] = []
        self._injector = injector
        self._seen = seen

    def through(self, operate: Callable[[], Outcome]) -> Outcome:
        """Run an operation again while the cloud refuses it and a user can fix the cause.

        Raises TrainyardError for other errors, and for a refusal without a next step.
        """
        while True:
            try:
                return operate()
            except TrainyardError as error:
                raised = {each.refusal.name: each for each in self._injector.raised}
                if raised.keys() <= {each.name for each in self.refused}:
                    raise  # not an injected refusal, or one that the user's fix has not ended
                self.refused += [_refused(each, error) for each in raised.values()]
                self._injector.apply_fixes()

    def phase(
        self, name: str, operate: Callable[[], Outcome], expected: Mapping[str, int] | None
    ) -> Mapping[str, int]:
        outcome = operate()
        changes = {change: number for change, number in outcome.changes.items() if number}
        self.phases.append(Phase(name, changes, outcome.seconds, tuple(outcome.notes)))
        self._seen(self.phases[-1])
        if expected is not None and changes != expected:
            raise TrainyardError([_unexpected(self.phases[-1], expected)])
        return changes


def rehearse(
    open_engine: Open, stage: FakeProviders, seen: Callable[[Phase], None] = lambda _: None
) -> Rehearsal:
    """Run every phase, and check after each that the existing resources equal those in the engine's state.

    Raises:
        TrainyardError: the engine, a policy or a phase's expectation failed.
    """
    engines: list[Operations] = []
    injector = Injector(stage.faults, lambda: _kill(engines))
    with _standing_in(stage, injector) as fake_providers:
        attached = ",".join(each.environment()["PULUMI_DEBUG_PROVIDERS"] for each in fake_providers)
        engine = open_engine({**fake_providers[0].environment(), "PULUMI_DEBUG_PROVIDERS": attached})
        engines.append(engine)
        run = _RehearsalRun(engine, injector, seen)
        number = run.phase("preview", engine.preview, None).get("create", 0)
        if stage.faults.has_any:
            _fail(run, injector)
        else:
            _up(run, number)
        resources = engine.resources()
        _compare(resources, fake_providers)
        _check_secrets(resources)
        if stage.adopts:
            _rebuild(run, fake_providers)
        run.phase("up again", engine.up, {"same": number})
        run.phase("refresh", engine.refresh, {"same": number})
        _update(run, number)
        resources = engine.resources()
        _compare(resources, fake_providers)
        _check_secrets(resources)
        _unprotect(run)
        retained = {each["urn"] for each in resources if each.get("retainOnDelete")}
        # What is deleted with another resource (objects with their cluster) is not deleted by itself.
        deleted_with = {each["urn"] for each in resources if each.get("deletedWith")}
        run.phase("destroy", lambda: run.through(engine.destroy), None)
        _check_left(engine.resources(), fake_providers, retained | deleted_with)
        if stage.adopts:
            _come_back(run, fake_providers)
            _unprotect(run, "unprotect again")
            run.phase("destroy again", engine.destroy, None)
            _check_left(engine.resources(), fake_providers, retained | deleted_with)
        _check_files(engine)
        return Rehearsal(
            tuple(run.phases),
            tuple(urn for each in fake_providers for urn in each.created),
            tuple(sorted(retained)),
            tuple(injector.happened),
            _unproven(stage.clouds),
            tuple(run.refused),
            tuple(
                sorted({each.name for each in stage.faults.refusals} - {each.name for each in run.refused})
            ),
        )


def _kill(engines: Sequence[Operations]) -> None:
    for engine in engines:
        engine.kill()


def _up(run: _RehearsalRun, number: int) -> None:
    """Create the stack; after a refusal, resources that were already created are not created again."""
    outcome = run.through(run.engine.up)
    expected = None if run.refused else {"create": number}
    run.phase("up after refusals" if run.refused else "up", lambda: outcome, expected)


def _refused(raised: RaisedRefusal, error: TrainyardError) -> Refused:
    """Return the next step that the user is given. Raises TrainyardError where that is nothing."""
    name, message = raised.refusal.name, raised.message
    found = [problem for problem in error.problems if message in problem.got]
    if not found or found[0].fix == GO_ON:
        got = found[0].got if found else f"{message}, which the error does not contain: {error}"
        fix = "add a row to the target's `advice` that matches this message"
        raise TrainyardError([Problem(f"rehearsal, refusal {name}", got, "the user's next step", fix)])
    return Refused(name, message, found[0].fix, raised.refusal.source)


def _update(run: _RehearsalRun, number: int) -> None:
    """Change the stack; the changes must equal the preview's, without replacements."""
    expected = run.engine.change()
    changes = run.phase("update", run.engine.up, None)
    besides = {change: count for change, count in changes.items() if change != "same"}
    if besides.keys() - {"update", "create"} or (expected and not besides):
        raise TrainyardError([_unexpected(run.phases[-1], {"same": number, **expected})])


def _rebuild(run: _RehearsalRun, fake_providers: Sequence[FakeProvider]) -> None:
    """Delete the state: it is rebuilt from what exists, and nothing is created again."""
    _check_files(run.engine)
    run.engine.delete_state()
    run.phase("adopt", run.engine.adopt, None)
    run.phase("up after adoption", run.engine.up, None)
    _compare(run.engine.resources(), fake_providers)


def _come_back(run: _RehearsalRun, fake_providers: Sequence[FakeProvider]) -> None:
    """Create the stack again after `destroy`: it adopts the retained resources."""
    run.engine.request_protection()
    run.phase("adopt retained resources", run.engine.adopt, None)
    run.phase("up with retained resources", run.engine.up, None)
    _compare(run.engine.resources(), fake_providers)


def _unprotect(run: _RehearsalRun, name: str = "unprotect") -> None:
    """Nothing that is protected can be destroyed: the guide's step before it."""
    _check_protection(run.engine)
    unprotected = run.engine.unprotect()
    if unprotected is not None:
        run.phase(name, lambda: unprotected, None)


def _check_protection(engine: Operations) -> None:
    """Destroy a stack that has something protected: it is refused, and nothing else is deleted first.

    Raises TrainyardError where it is not.
    """
    before = engine.resources()
    if not any(each.get("protect") for each in before):
        return
    with suppress(TrainyardError):
        engine.destroy()
    remaining = {each["urn"] for each in engine.resources()}
    deleted = [each["urn"] for each in before if each["urn"] not in remaining]
    if deleted:
        raise TrainyardError([_amiss(urn, "was deleted though others are protected") for urn in deleted])


def _fail(run: _RehearsalRun, injector: Injector) -> None:
    """Run `up` until no fault stops it any more. Raises TrainyardError where none happens, or by itself."""
    outcome = None
    while outcome is None:
        happened = len(injector.happened)
        try:
            outcome = run.engine.up()
        except TrainyardError:
            if len(injector.happened) == happened:
                raise
    if not injector.happened:
        allowed = "a fault that can happen to this stack"
        fix = "name a type, a pool or a number of creations that the preview shows"
        got = f"{injector.pending}: `up` succeeded"
        raise TrainyardError([Problem("the injected fault", got, allowed, fix)])
    ended = outcome
    run.phase("up after the fault", lambda: ended, None)


@contextmanager
def _standing_in(stage: FakeProviders, injector: Injector) -> Iterator[list[FakeProvider]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                FakeProvider(
                    [package], ANY_VERSION, cloud=cloud, folder=stage.folder / package, injector=injector
                )
            )
            for package, cloud in stage.clouds.items()
        ]


def _compare(resources: Sequence[Mapping[str, Any]], fake_providers: Sequence[FakeProvider]) -> None:
    """Hold what exists against the engine's state. Raises TrainyardError."""
    known = Counter(each["urn"] for each in resources if _is_made(each))
    there = Counter(stored.urn for each in fake_providers for stored in each.store)
    if known != there:
        raise TrainyardError(
            [
                *(
                    _amiss(urn, f"exists {there[urn]} times, known {known[urn]} times")
                    for urn in there - known
                ),
                *(_amiss(urn, "is in the engine's state and does not exist") for urn in known - there),
            ]
        )


def _check_secrets(resources: Sequence[Mapping[str, Any]]) -> None:
    """No secret can be read in the engine's state. Raises TrainyardError."""
    fix = "give the property to `additional_secret_outputs`, or wrap the value in `pulumi.Output.secret`"
    problems = [
        Problem(f"{each['urn'].split('::', 2)[2]}: {part}.{name}", f"{kind} in plain text", "encrypted", fix)
        for each in resources
        for part in ("inputs", "outputs")
        for name, value in (each.get(part) or {}).items()
        for kind in sorted(kinds_in(json.dumps({name: value})))
    ]
    if problems:
        raise TrainyardError(problems)


def _check_files(engine: Operations) -> None:
    """No file that the rehearsal wrote has a readable secret. Raises TrainyardError."""
    fix = "find the code that writes the file, and omit the secret there"
    problems = [Problem(each.file, f"{each.kind} in plain text", "encrypted", fix) for each in engine.leaks()]
    if problems:
        raise TrainyardError(problems)


def _is_made(resource: Mapping[str, Any]) -> bool:
    return bool(resource.get("custom")) and not resource["type"].startswith("pulumi:")


def _check_left(
    resources: Sequence[Mapping[str, Any]], fake_providers: Sequence[FakeProvider], meant: set[str]
) -> None:
    """Only resources that are to be retained remain. Raises TrainyardError."""
    left = {stored.urn for each in fake_providers for stored in each.store} - meant
    problems = [_amiss(urn, "is left after destroy") for urn in sorted(left)]
    problems += [_amiss(each["urn"], "is still in the engine's state") for each in resources]
    if problems:
        raise TrainyardError(problems)


def _unproven(clouds: Mapping[str, Cloud]) -> dict[str, list[str]]:
    """Return the checks that were not possible in the clouds."""
    found: dict[str, list[str]] = {}
    for package, cloud in clouds.items():
        for what, types in cloud.unproven(package).items():
            found.setdefault(what, []).extend(types)
    return found


def _amiss(urn: str, what: str) -> Problem:
    fix = "this is a bug of the program or of the recovery: report it with the stack file"
    return Problem(urn.split("::", 2)[2], what, "one resource for each in the engine's state", fix)


def _unexpected(phase: Phase, expected: Mapping[str, int]) -> Problem:
    return Problem(
        f"rehearsal, {phase.name}",
        f"resources: {dict(phase.changes)}",
        f"what the preview announced: {dict(expected)}",
        "look for a value that differs from run to run, or a resource that depends on one",
    )


def with_common(clouds: Mapping[str, Cloud]) -> dict[str, Cloud]:
    """Add the packages that every stack has: Kubernetes, and this project's own."""
    return {"kubernetes": Kubernetes(), "trainyard": Own(), **clouds}
