"""Configuration of a policy run: permitted regions, exemptions, stack settings."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cache, cached_property

from policies import jurisdictions
from policies.exemptions import Exemption, PolicyConfigError, parse_exemptions
from policies.unknowns import Value

NAMESPACE = "trainyard"
"""Namespace of the stack's configuration keys that the pack reads, the same in every project."""
DUAL_REGIONS = {
    "asia1": ("asia-northeast1", "asia-northeast2"),
    "eur4": ("europe-north1", "europe-west4"),
    "eur5": ("europe-west1", "europe-west2"),
    "eur7": ("europe-west2", "europe-west3"),
    "eur8": ("europe-west3", "europe-west6"),
    "nam4": ("us-central1", "us-east1"),
}
"""Dual regions of Cloud Storage (Google Cloud: bucket locations, 2026-11)."""
DEFER, REFUSE = "defer", "refuse"
"""What a preview does with a value that a policy needs and that is not known yet."""


@dataclass(frozen=True)
class Residency:
    """Permitted regions: the organisation's list, which the stack's own list can only narrow."""

    organisation: tuple[str, ...] | None = None
    stack: tuple[str, ...] | None = None

    @property
    def is_declared(self) -> bool:
        return self.organisation is not None or self.stack is not None

    def permits(self, region: str) -> bool:
        """Whether every list that was given has a pattern for this region; case does not matter."""
        return _permits(self, region)

    def __str__(self) -> str:
        parts = []
        if self.stack is not None:
            parts.append(", ".join(self.stack) or "nothing")
        if self.organisation is not None:
            parts.append(f"{', '.join(self.organisation) or 'nothing'} (organisation)")
        return " and within ".join(parts) or "anywhere"


@cache
def _permits(residency: Residency, region: str) -> bool:
    lists = [patterns for patterns in (residency.organisation, residency.stack) if patterns is not None]
    name = region.lower()
    if parts := DUAL_REGIONS.get(name):
        return all(_permits(residency, part) for part in parts)
    return all(any(_matches(name, pattern.lower()) for pattern in patterns) for patterns in lists)


def _matches(region: str, pattern: str) -> bool:
    if pattern.startswith(jurisdictions.PREFIX):
        return jurisdictions.is_within(region, pattern.removeprefix(jurisdictions.PREFIX))
    return fnmatchcase(region, pattern)


def check_patterns(patterns: tuple[str, ...], where: str) -> tuple[str, ...]:
    """The patterns themselves; raises `PolicyConfigError` for a jurisdiction that the catalogue lacks."""
    for pattern in patterns:
        name = pattern.lower().removeprefix(jurisdictions.PREFIX)
        if name != pattern.lower() and name not in jurisdictions.known():
            allowed = f"in: and one of {', '.join(sorted(jurisdictions.known()))}"
            raise PolicyConfigError(f"{where}: got {pattern!r}; allowed: {allowed}")
    return patterns


@dataclass(frozen=True)
class Organisation:
    """Settings for every stack, from the pack's configuration, which stacks cannot change."""

    residency: tuple[str, ...] | None = None
    exemptions: tuple[Exemption, ...] = ()
    allows_stack_exemptions: bool = True
    """Whether stacks may declare exemptions (`trainyard:exemptions`)."""


class DeclaredNames:
    """Names of what a run declares: physical ones, and logical ones from which the engine makes them."""

    def __init__(self) -> None:
        self._given: set[str] = set()
        self._logical: set[str] = set()

    def add(self, resource_type: str, logical: str, inputs: Mapping[str, Value]) -> None:
        """Add a resource: the name that its inputs give (`name`, a Workspace's `workspaceName`, a Bucket's
        `bucket`), else its logical name.
        """
        kind = resource_type.rpartition(":")[2].removesuffix("V2").lower()
        texts = ((re.sub("(name|id)$", "", key.lower()), key, text) for key, text in inputs.items())
        given = [
            text
            for stem, key, text in texts
            if isinstance(text, str) and (key == "name" or (stem and kind.endswith(stem)))
        ]
        (self._given if given else self._logical).update(given or [logical])

    def has(self, name: str) -> bool:
        """Whether a declared resource has this name, or a logical one with the engine's random suffix."""
        made = re.fullmatch(r"(.+?)-?[0-9a-f]{7,8}", name)
        return name in self._given or bool({name, made[1] if made else name} & self._logical)


@dataclass(frozen=True)
class EvaluatedStack:
    """The stack being evaluated: its names, configuration, and the environment that the engine runs in."""

    project: str = ""
    name: str = ""
    dry_run: bool = True
    config: Mapping[str, str] = field(default_factory=dict)
    """Configuration: `namespace:key` → text; structured values are JSON."""
    environment: Mapping[str, str] = field(default_factory=dict)
    today: date = field(default_factory=lambda: datetime.now(UTC).date())
    organisation: Organisation = field(default_factory=Organisation)
    costs: dict[str, Decimal] = field(default_factory=dict, compare=False)
    """URN → USD per hour of the resources evaluated so far, which ceilings add up."""
    declared: DeclaredNames = field(default_factory=DeclaredNames, compare=False)
    """Names of the resources evaluated so far: what this run declares is judged itself, and is inside."""

    def setting(self, key: str, default: Value = None) -> Value:
        """A structured value of the `trainyard:` namespace.

        Raises `PolicyConfigError` where the text is not JSON.
        """
        text = self.config.get(f"{NAMESPACE}:{key}")
        if text is None:
            return default
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise PolicyConfigError(f"{NAMESPACE}:{key}: not JSON: {error}") from error

    @cached_property
    def refuses_unknown(self) -> bool:
        """Whether an unknown value is refused at preview (`trainyard:unknown: refuse`), not deferred."""
        text = self.config.get(f"{NAMESPACE}:unknown", DEFER).strip('"')
        if text not in (DEFER, REFUSE):
            raise PolicyConfigError(f"{NAMESPACE}:unknown: got {text!r}; allowed: {DEFER}, {REFUSE}")
        return text == REFUSE

    @cached_property
    def residency(self) -> Residency:
        """Raises `PolicyConfigError` where `trainyard:residency` is not `{allowed: [pattern, …]}`."""
        declared = self.setting("residency")
        if declared is None:
            return Residency(self.organisation.residency)
        allowed = declared.get("allowed") if isinstance(declared, Mapping) else None
        if not isinstance(allowed, list) or not all(isinstance(pattern, str) for pattern in allowed):
            raise PolicyConfigError(
                f"{NAMESPACE}:residency: got {declared!r}; allowed: {{allowed: [eu-*, …]}}"
            )
        stack = check_patterns(tuple(allowed), f"{NAMESPACE}:residency")
        return Residency(self.organisation.residency, stack)

    @cached_property
    def exemptions(self) -> tuple[Exemption, ...]:
        """The organisation's, then the stack's (`trainyard:exemptions`) where it may have any.

        A stack exemption covered by an organisation grant is accepted.
        """
        granted, where = self.organisation.exemptions, f"{NAMESPACE}:exemptions"
        own = parse_exemptions(self.setting("exemptions", []), where)
        for index, exemption in enumerate(own):
            exemption.check_written(f"{where}[{index}]")
        if self.organisation.allows_stack_exemptions:
            return granted + own
        for index, exemption in enumerate(own):
            if not any(each.includes(exemption) for each in granted):
                got = f"{exemption.policy} for {exemption.resource}"
                allowed = "what the organisation grants (`granted` of the policy `exemptions` in its file)"
                raise PolicyConfigError(
                    f"{where}[{index}]: got {got}; allowed: {allowed}. Remove it, or ask the organisation."
                )
        return granted
