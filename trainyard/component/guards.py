"""Checks of components that apply even without the policy pack: residency, spot fallback, secret values. They
also warn of unused providers and of a plan that no policy evaluates.

The rules and their exemptions (`trainyard:exemptions`) are the policy pack's own; the pack has many more.
"""

import os
from collections.abc import Collection, Iterator, Sequence

import pulumi

from infra.common.artifacts import ROOT
from infra.common.target_registry import target_of
from infra.errors import InputError, Problem
from infra.stackfile import Fleet, Stack
from policies import presence
from policies.config import NAMESPACE
from policies.config import EvaluatedStack as Run
from policies.evaluation import PolicyEvaluator
from policies.exemptions import PolicyConfigError
from policies.policy import Resource
from policies.residency import locations
from policies.spot import fallback
from policies.unknowns import PropertyBlock

RULES = (fallback.POLICY, locations.POLICY)
PACK = ROOT / "policies"


def check_stack(stack: Stack, run: Run) -> None:
    """Refuse data outside `trainyard:residency`, and spot pools without a fallback. Raises InputError."""
    token = f"trainyard:infra:{target_of(stack.target.kind).cluster.rpartition(':')[2]}"
    spec = PropertyBlock({"stack": stack.model_dump(mode="json", by_alias=True)})
    _raise(_found(Resource(token, stack.name, props=spec, stack=_readable(run, "stack"))))


def check_fleet(fleet: Fleet, run: Run) -> None:
    """Refuse workers outside of `trainyard:residency`: jobs take their data there. Raises InputError."""
    _raise(_workers_abroad(fleet, _readable(run, "fleet")))


def no_policy_warning(run: Run) -> str:
    """Return a warning that says how to add the policy pack; empty if the pack already evaluates the run."""
    if presence.is_evaluating(run.project, run.name, os.environ):
        return ""
    command = f"pulumi {'preview' if run.dry_run else 'up'} --policy-pack {PACK}"
    return (
        "no policy evaluates this plan: the component itself refuses only two things: data outside "
        f"`trainyard:residency`, and spot pools without a fallback. With the pack of this version: {command}"
    )


def refuse_secrets(paths: Sequence[str]) -> None:
    """Refuse secret values in a job, since its team can read the TrainJob. Raises InputError."""
    allowed = "a value that the TrainJob and the state may show"
    fix = "store it in a Secret of the team (`trainyard team secret set`), and name it in `job.secrets`"
    raise InputError([Problem(path, "a secret", allowed, fix) for path in paths])


def warn_of_secrets(paths: Sequence[str]) -> None:
    """Warn of secret values that resources, their outputs and the state show."""
    pulumi.log.warn(
        f"{', '.join(paths)}: a secret, which resources made from it and the state show as plain text; "
        "pass what may be shown (nothing of a stack has to be secret: credentials are the environment's)"
    )


def unused_providers_warning(given: Collection[str]) -> str:
    """Return a warning that the passed providers are not used; empty where none is passed."""
    if not (unused := sorted({*given} - {NAMESPACE})):
        return ""
    return (
        f"the option `providers` has no effect here ({', '.join(unused)}): the component makes providers of "
        "the account, region and cluster that its input names, with the credentials of the environment"
    )


def _readable(run: Run, path: str) -> Run:
    """Return the run whose configuration the rules can read. Raises InputError where they cannot."""
    try:
        _ = run.residency, run.exemptions
    except PolicyConfigError as error:
        allowed, fix = "configuration as docs/policies.md has it", "correct it in the stack's configuration"
        raise InputError([Problem(path, str(error), allowed, fix)]) from None
    return run


def _found(resource: Resource) -> Iterator[Problem]:
    for finding in PolicyEvaluator(RULES).evaluate(resource):
        if finding.stops:
            found, remedy = finding.violation, finding.policy.remedy
            fix = f"{remedy[:1].lower()}{remedy[1:].removesuffix('.')}"
            yield Problem(found.property, str(found.got), found.allowed, fix)


def _workers_abroad(fleet: Fleet, run: Run) -> Iterator[Problem]:
    for index, worker in enumerate(fleet.workers):
        if run.residency.is_declared and not run.residency.permits(worker.place.name):
            path, fix = f"fleet.workers[{index}].place", "remove the worker, or use an existing one"
            yield Problem(path, worker.place.name, str(run.residency), fix)


def _raise(found: Iterator[Problem]) -> None:
    if problems := list(found):
        raise InputError(problems)
