"""The targets that a stack file can name: a new target adds its spec class here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any

from pydantic import BeforeValidator, SerializeAsAny

from infra.spec.base import wrong
from infra.spec.finding import Check
from infra.spec.provider import ProviderSpec


@dataclass(frozen=True)
class Target:
    """Where a target's spec is: `module:name`, imported on use, since a stack has one target."""

    spec: str
    checks: str = ""
    """What only that target would refuse: checks between the sections; empty for none."""


TARGETS: Mapping[str, Target] = {
    "local": Target("infra.targets.local.spec.provider:LocalSpec"),
    "aws": Target(
        "infra.targets.aws.spec.provider:AwsSpec", checks="infra.targets.aws.spec.validators:CHECKS"
    ),
    "gcp": Target(
        "infra.targets.gcp.spec.provider:GcpSpec", checks="infra.targets.gcp.spec.validators:CHECKS"
    ),
    "azure": Target(
        "infra.targets.azure.spec.provider:AzureSpec", checks="infra.targets.azure.spec.validators:CHECKS"
    ),
    "onprem": Target(
        "infra.targets.onprem.spec.provider:OnpremSpec", checks="infra.targets.onprem.spec.validators:CHECKS"
    ),
    "coreweave": Target(
        "infra.targets.coreweave.spec.provider:CoreweaveSpec",
        checks="infra.targets.coreweave.spec.validators:CHECKS",
    ),
}


def target_model(data: object) -> type[ProviderSpec]:
    """Return the spec class of what `provider:` holds; the base class where `kind` names none."""
    kind = data.get("kind") if isinstance(data, dict) else None
    return _spec(str(kind)) if kind in TARGETS else ProviderSpec


def target_checks(kind: str) -> Sequence[Check]:
    """Return the checks of a kind that is known."""
    checks: Sequence[Check] = _imported(TARGETS[kind].checks) if TARGETS[kind].checks else ()
    return checks


def _spec(kind: str) -> type[ProviderSpec]:
    found: type[ProviderSpec] = _imported(TARGETS[kind].spec)
    return found


def _imported(path: str) -> Any:  # noqa: ANN401 -- whatever has that name
    module, name = path.split(":")
    return getattr(import_module(module), name)


def _by_kind(data: Any) -> Any:  # noqa: ANN401 -- pydantic hands over whatever the user wrote
    """Read the provider with its target's own class, so that each key is checked against that target."""
    if not isinstance(data, dict) or "kind" not in data:
        return data
    kind = data["kind"]
    if kind not in TARGETS:
        near = get_close_matches(str(kind), TARGETS, n=1, cutoff=0.5)
        fix = f"did you mean {near[0]!r}?" if near else "name one of the targets that this release has"
        raise wrong("provider_kind", " or ".join(TARGETS), fix, "kind")
    return _spec(kind).model_validate(data)


AnyProvider = Annotated[SerializeAsAny[ProviderSpec], BeforeValidator(_by_kind)]
