"""The targets that a stack file can name: a new target adds its spec class here."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import BeforeValidator, SerializeAsAny

from infra.spec.aws import AwsSpec
from infra.spec.base import wrong
from infra.spec.local import LocalSpec
from infra.spec.provider import ProviderSpec

TARGETS: Mapping[str, type[ProviderSpec]] = {"local": LocalSpec, "aws": AwsSpec}


def target_model(data: object) -> type[ProviderSpec]:
    """Return the spec class of what `provider:` holds; the base class where `kind` names none."""
    kind = data.get("kind") if isinstance(data, dict) else None
    return TARGETS.get(str(kind), ProviderSpec)


def _by_kind(data: Any) -> Any:  # noqa: ANN401 -- pydantic hands over whatever the user wrote
    """Read the provider with its target's own class, so that each key is checked against that target."""
    if not isinstance(data, dict) or "kind" not in data:
        return data
    kind = data["kind"]
    if kind not in TARGETS:
        near = get_close_matches(str(kind), TARGETS, n=1, cutoff=0.5)
        fix = f"did you mean {near[0]!r}?" if near else "name one of the targets that this release has"
        raise wrong("provider_kind", " or ".join(TARGETS), fix, "kind")
    return TARGETS[kind].model_validate(data)


AnyProvider = Annotated[SerializeAsAny[ProviderSpec], BeforeValidator(_by_kind)]
