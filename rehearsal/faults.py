"""Fault injection for rehearsals: failed creations, missing capacity, refusals and crashes."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from infra.errors import InputError, Problem
from rehearsal.cloud import RequestedResource
from rehearsal.refusals import KnownRefusal, Moment, is_type

POOL_LABEL = "trainyard.dev/pool"
"""Node label by which a node group is assigned to its pool, on every cloud."""


ENDING_SECONDS = 60.0
"""Timeout for running operations to end after the engine is killed."""


@dataclass(frozen=True)
class Faults:
    """Faults to inject in a rehearsal: each happens once."""

    fail: str = ""
    """Type whose creation fails, in full or by its last part: `aws:eks/cluster:Cluster`, `Cluster`."""
    fail_at: int = 1
    """Number of the failing creation of that type, from 1."""
    no_capacity: str = ""
    """Name of the pool for which the cloud has no machines."""
    crash_after: int = 0
    """Number of creations after which the engine is killed, the last one unanswered; 0: never."""
    refusals: tuple[KnownRefusal, ...] = ()
    """Refusals by the cloud, in force until their cause is fixed."""

    @property
    def has_any(self) -> bool:
        """Whether the first `up` is to fail."""
        return bool(self.fail or self.no_capacity or self.crash_after)

    def __str__(self) -> str:
        parts = [
            f"creation {self.fail_at} of {self.fail} fails" if self.fail else "",
            f"no capacity for pool {self.no_capacity}" if self.no_capacity else "",
            f"the engine is killed after {self.crash_after} creations" if self.crash_after else "",
        ]
        return ", ".join(part for part in parts if part)


def parse_fail(text: str) -> tuple[str, int]:
    """Read `TYPE[:NTH]`. Raises InputError."""
    kind, _, last = text.rpartition(":")
    kind, nth = (kind, int(last)) if last.isdigit() else (text, 1)
    if not kind or nth < 1:
        allowed = "TYPE or TYPE:NTH, with NTH from 1: NodeGroup:2, aws:eks/cluster:Cluster"
        raise InputError([Problem("--fail", repr(text), allowed, "write the type as the preview shows it")])
    return kind, nth


class InjectedError(Exception):
    """A fault that was asked for."""


class HalfMadeError(InjectedError):
    """A resource exists but is incomplete: without machines, for example."""


@dataclass(frozen=True)
class RaisedRefusal:
    """A refusal that was raised, with the cloud's message."""

    refusal: KnownRefusal
    message: str


class Injector:
    """Counts what happens, and lets the faults happen at their moment."""

    def __init__(self, faults: Faults, crash: Callable[[], object]) -> None:
        self._faults = faults
        self._crash = crash
        self._lock = threading.RLock()
        self._quiet = threading.Condition(self._lock)
        self._seen = self._made = self._under_way = 0
        self._crashing = self._starved = False
        self.happened: list[str] = []
        """Injected faults so far, in words."""
        self.raised: list[RaisedRefusal] = []
        """Refusals by the cloud since the last call of `apply_fixes`."""
        self._fixed: set[str] = set()
        self._seen_persistent: set[str] = set()
        self._half_made: set[tuple[str, str]] = set()

    def apply_fixes(self) -> None:
        """Apply the errors' fixes, as a user would; what lasts for hours cannot be fixed."""
        with self._lock:
            self._fixed |= {each.refusal.name for each in self.raised if not each.refusal.lasts}
            self._seen_persistent |= {each.refusal.name for each in self.raised if each.refusal.retained}
            self.raised.clear()

    def removing(self, resource: RequestedResource) -> None:
        """Decide whether a deletion is refused. Raises `InjectedError`."""
        self._refuse(resource, "delete", retained=False)

    def mending(self, resource: RequestedResource) -> None:
        """Decide whether an incomplete resource can be completed now: the account may have several refusals.

        Raises `InjectedError`.
        """
        if (resource.token, resource.name) in self._half_made:
            self._refuse(resource, "create", retained=True)

    def _refuse(self, resource: RequestedResource, moment: Moment, *, retained: bool) -> None:
        over = self._fixed | (self._seen_persistent if retained else set())
        for each in self._faults.refusals:
            if each.retained == retained and each.name not in over and each.matches(resource, moment):
                message = each.text(resource)
                with self._lock:
                    self.raised.append(RaisedRefusal(each, message))
                    self._half_made |= {(resource.token, resource.name)} if retained else set()
                raise HalfMadeError(message) if retained else InjectedError(message)

    def before(self, resource: RequestedResource) -> None:
        """Decide whether a creation fails. Raises `InjectedError`."""
        self._refuse(resource, "create", retained=False)
        if not self._faults.fail or not is_type(resource.token, self._faults.fail):
            return
        with self._lock:
            self._seen += 1
            due = self._seen == self._faults.fail_at
        if due:
            self._report(f"{resource.token} {resource.name} was refused")
            raise InjectedError(f"injected: creation {self._faults.fail_at} of {self._faults.fail} fails")

    @contextmanager
    def creating(self, resource: RequestedResource) -> Iterator[None]:
        """Surround a creation from its begin to its answer. Raises `InjectedError`."""
        self.before(resource)
        with self._lock:
            if self._crashing:
                raise InjectedError("injected: the engine is being killed")
            self._under_way += 1
        try:
            yield
        finally:
            with self._quiet:
                self._under_way -= 1
                self._quiet.notify_all()

    def after(self, resource: RequestedResource) -> None:
        """End a creation, before it is answered. Raises `HalfMadeError`; may end the engine."""
        with self._lock:
            self._made += 1
            crashes = self._made == self._faults.crash_after
            starved = not crashes and self._is_starved(resource)
        if crashes:
            self._kill(resource)
        if starved:
            self._report(f"pool {self._faults.no_capacity} got no machines")
            raise HalfMadeError(f"injected: InsufficientInstanceCapacity in pool {self._faults.no_capacity}")
        self._refuse(resource, "create", retained=True)

    def _kill(self, resource: RequestedResource) -> None:
        """Kill the engine; the cloud completes running operations and begins no later ones."""
        with self._quiet:
            self._crashing = True
            self._quiet.wait_for(lambda: self._under_way <= 1, timeout=ENDING_SECONDS)
            name = f"{resource.token} {resource.name}"
            self._report(f"the engine was killed after {name} was created, before the answer")
            self._crash()
            self._crashing = False

    @property
    def pending(self) -> str:
        """Return the requested faults that have not happened; empty for none."""
        return str(self._faults) if self._faults.has_any and not self.happened else ""

    def _is_starved(self, resource: RequestedResource) -> bool:
        wanted = self._faults.no_capacity
        due = bool(wanted) and not self._starved and wanted in _pools(resource.inputs)
        self._starved |= due
        return due

    def _report(self, text: str) -> None:
        with self._lock:
            self.happened.append(text)


def _pools(inputs: Mapping[str, Any]) -> set[str]:
    """Names of pools in the labels of a group of nodes: the group's, or those of its `nodeConfig`."""
    in_configuration = (inputs.get("nodeConfig") or {}).get("labels")
    label_sets = (inputs.get("labels"), inputs.get("nodeLabels"), in_configuration)
    return {str(labels[POOL_LABEL]) for labels in label_sets if labels and POOL_LABEL in labels}
