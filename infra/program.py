"""The Pulumi program: reads the configured stack or fleet and declares all of its resources. Tests and
rehearsals call it too.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pulumi

import catalog
from infra.common.artifacts import ROOT, Artifacts
from infra.common.target_registry import target_of
from infra.errors import InputError, Problem
from infra.outputs import stack_outputs
from infra.platform.platform import Platform
from infra.stackfile import Fleet, Stack, parse, parse_fleet
from infra.stackfile.answers import Override, answered, answers_in, overrides, without_secrets
from infra.stackfile.self_service import expiry_warnings
from infra.stackfile.source import FLEET_KEY, STACK_KEY, SpecSource, read, with_teams


def run(name: str) -> dict[str, Any]:
    """Declare the fleet or cluster of the stack's configuration, and return the outputs."""
    if pulumi.Config("trainyard").get("fleet") is not None:
        return declare_fleet(load_fleet(name))
    return declare(load_stack(name), Artifacts.from_environment(), residency=_residency())


def _residency() -> tuple[str, ...] | None:
    """Return the regions of `trainyard:residency`; None where it is not set.

    Raises InputError for a jurisdiction that the catalogue lacks.
    """
    declared = pulumi.Config("trainyard").get_object("residency") or {}
    if (allowed := declared.get("allowed")) is None:
        return None
    try:
        catalog.as_expressions(allowed)
    except catalog.UnknownNameError as error:
        raise InputError([Problem("trainyard:residency", error.got, error.allowed, error.fix)]) from None
    return tuple(allowed)


def load_stack(name: str) -> Stack:
    """Read the engine's configuration; where the stack file has the same, problems show its lines.

    Raises InputError with every problem.
    """
    return parse(*_configured(name, STACK_KEY), name)


def load_fleet(name: str) -> Fleet:
    """Read a fleet, as `load_stack` reads a stack."""
    return parse_fleet(*_configured(name, FLEET_KEY))


def _configured(name: str, key: str) -> tuple[Any, SpecSource]:
    section, config = pulumi.Config("trainyard").require_object(key.partition(":")[2]), _configuration()
    configured, source = answered(section, answers_in(config, key)), SpecSource(key, key=key)
    folder = Path(os.environ.get("TRAINYARD_STACKS") or ROOT / "stacks")
    if key == STACK_KEY:
        configured, source = with_teams(configured, source, folder)
    shown = without_secrets(config, [each for each in config if pulumi.runtime.is_config_secret(each)])
    changed: Sequence[Override] = overrides(section, answers_in(shown, key), key)
    file = folder / f"Pulumi.{name}.yaml"
    if file.exists():
        data, found = read(file, key)
        source, changed = (found, found.overrides) if data == configured else (source, changed)
    for each in changed:
        pulumi.log.info(str(each))
    return configured, source


def _configuration() -> Mapping[str, str]:
    config: Mapping[str, str] = pulumi.runtime.config.CONFIG.get()
    return config


def declare_fleet(fleet: Fleet, options: pulumi.ResourceOptions | None = None) -> dict[str, Any]:
    """Declare what joins the fleet's stacks and return the outputs; `options` are those of its component."""
    from infra.fleet.joined import FleetLinks  # imported only for a fleet

    return FleetLinks(fleet, options).outputs


def declare(
    stack: Stack,
    artifacts: Artifacts,
    options: pulumi.ResourceOptions | None = None,
    *,
    residency: tuple[str, ...] | None = None,
) -> dict[str, Any]:
    """Declare every resource of the stack and return its outputs; `options` are those of its components.

    `residency` is where data may be (patterns, docs/policies.md); None where it is unknown.

    Raises InputError for features that the target lacks, HostError for a missing chart or helm.
    """
    for text in expiry_warnings(stack):
        pulumi.log.warn(text)
    target = target_of(stack.target.kind).cluster_class()
    cluster = target(stack, artifacts, options)
    Platform(stack, cluster, artifacts, options, residency)
    return stack_outputs(stack, cluster)
