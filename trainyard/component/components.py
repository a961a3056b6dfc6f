"""Defines the components `Cluster`, `Fleet` and `TrainingJob`: how each checks its input, declares its parts
and returns its outputs. If the input is not yet known, a preview warns and declares no part.
"""

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from inspect import isawaitable
from typing import Any

import pulumi

from engine.paths import Paths
from infra import team_queues
from infra.common.kubernetes_objects import named_after
from infra.errors import InputError, Problem
from infra.program import declare, declare_fleet
from infra.stackfile import Fleet, Stack, parse, parse_fleet
from infra.stackfile.job_file import parse_job
from infra.stackfile.source import SpecSource, with_teams
from policies.config import EvaluatedStack as Run
from trainyard.component.guards import (
    check_fleet,
    check_stack,
    no_policy_warning,
    refuse_secrets,
    unused_providers_warning,
    warn_of_secrets,
)
from trainyard.component.needs import provide, warn_or_refuse_host
from trainyard.component.outputs import OUTPUTS

Outputs = Mapping[str, Any]
Declare = Callable[[pulumi.ResourceOptions], Awaitable[Outputs]]
"""Declares all parts with these resource options, and returns the outputs."""
Parts = Callable[[pulumi.ResourceOptions], Outputs | Awaitable[Outputs]]
"""Declares all parts like `Declare`; may be asynchronous, to wait for the cluster's answer."""
Inputs = Mapping[str, Any]
"""A component's inputs by name, as the user wrote them; UNKNOWN for what is known only after `up`."""


@dataclass(frozen=True)
class Kind:
    """One component of the package."""

    name: str
    key: str
    """Name of the required input, whose value must be known."""
    prepare: Callable[[Inputs, SpecSource, Run], Parts]
    """Reads the inputs. InputError has every problem; HostError names what cannot be installed."""
    others: tuple[str, ...] = ()
    """Inputs that may be omitted, or unknown at a preview."""
    on_secrets: Callable[[Sequence[str]], None] = warn_of_secrets
    """Called with the paths of secret values; raises InputError if the component refuses them."""
    makes_providers: bool = True
    """Whether the component creates its parts' providers itself, and ignores those that the program
    passes."""

    def read(self, inputs: Inputs, run: Run) -> Declare:
        """Check the inputs and install the target's packages, before anything is declared."""
        with self._paths_from_input():
            declare_parts = self.prepare(inputs, SpecSource(self.key, key=self.key), run)

        async def declared(options: pulumi.ResourceOptions) -> Outputs:
            with self._paths_from_input():  # errors of this host, such as a missing context
                outputs = declare_parts(options)
                return await outputs if isawaitable(outputs) else outputs

        return declared

    @contextmanager
    def _paths_from_input(self) -> Iterator[None]:
        try:
            yield
        except InputError as error:
            raise InputError([self._within(problem) for problem in error.problems]) from None

    def _within(self, problem: Problem) -> Problem:
        """Spell a path from the component's input on: `stack.pools[0].num_nodes`."""
        begins = problem.path.partition(".")[0].partition("[")[0]
        is_file = problem.location.startswith(f"{problem.path}:")
        path = problem.path if is_file or begins in {self.key, *self.others} else f"{self.key}.{problem.path}"
        location = "" if problem.location == self.key else problem.location  # of a team's file
        return replace(problem, path=path, location=location)


class Component(pulumi.ComponentResource):
    """The component resource in the program's tree; the parent of its parts."""

    def __init__(
        self, kind: Kind, name: str, run: Run, opts: pulumi.ResourceOptions, providers: Collection[str]
    ) -> None:
        """Declare it; `providers` are the packages of which the program gives it one."""
        super().__init__(f"trainyard:index:{kind.name}", name, {}, opts)
        self._kind = kind
        self.outputs: Outputs = {}
        unused = unused_providers_warning(providers) if kind.makes_providers else ""
        for warning in filter(None, (no_policy_warning(run), unused)):
            pulumi.log.warn(warning, resource=self)

    async def declare(self, declare_parts: Declare | None) -> None:
        """Declare the parts; without `declare_parts`, at a preview that does not know the input, none."""
        if declare_parts is None:
            self._warn(self._kind.key)
            unknown = pulumi.Output.from_input(pulumi.UNKNOWN)
            self.outputs = dict.fromkeys(OUTPUTS[self._kind.name], unknown)
            self.register_outputs({})
            return
        # The alias lets resources that infra/program.py declared at the root move here without a change.
        aliases: list[pulumi.Alias | pulumi.Input[str]] = [pulumi.Alias(parent=pulumi.ROOT_STACK_RESOURCE)]
        self.outputs = await declare_parts(pulumi.ResourceOptions(parent=self, aliases=aliases))
        self.register_outputs(dict(self.outputs))

    def _warn(self, key: str) -> None:
        text = (
            f"`{key}` holds a value that is known only after `pulumi up`: this preview lists no part of it "
            "(existing parts are shown as deleted, but remain), and no policy can evaluate one. Give known "
            "values, or read them by Config or a StackReference."
        )
        pulumi.log.warn(text, resource=self)


def _cluster(inputs: Inputs, source: SpecSource, run: Run) -> Parts:
    data, source = with_teams(inputs[source.key], source, Paths.from_environment().stacks)
    stack: Stack = parse(data, source, run.name)
    check_stack(stack, run)
    warn_or_refuse_host(stack, must_fit=not run.dry_run)
    artifacts = provide(stack, pulumi.log.info, is_preview=run.dry_run)
    allowed = run.residency.stack
    return lambda options: _named_after(
        stack.name, lambda: declare(stack, artifacts, options, residency=allowed)
    )


def _fleet(inputs: Inputs, source: SpecSource, run: Run) -> Parts:
    fleet: Fleet = parse_fleet(inputs[source.key], source)
    check_fleet(fleet, run)
    return lambda options: _named_after(fleet.name, lambda: declare_fleet(fleet, options))


def _training_job(inputs: Inputs, source: SpecSource, _: Run) -> Parts:
    from trainyard.component.training_job import check, declare_job  # late, as it takes 0.2 s

    job, queues = parse_job(inputs[source.key], source), team_queues.read(inputs.get("queues"))
    check(job, queues)
    return lambda options: declare_job(job, queues, options)


def _named_after(name: str, made: Callable[[], Outputs]) -> Outputs:
    with named_after(name):
        return made()


COMPONENTS: Mapping[str, Kind] = {
    "trainyard:index:Cluster": Kind("Cluster", "stack", _cluster),
    "trainyard:index:Fleet": Kind("Fleet", "fleet", _fleet),
    "trainyard:index:TrainingJob": Kind(
        "TrainingJob", "job", _training_job, ("queues",), refuse_secrets, makes_providers=False
    ),
}
"""Component of each type token."""
