"""Judging one resource by every policy that concerns it, closed to doubt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from policies.exemptions import ConfigError, Exemption
from policies.neighbours import Neighbours
from policies.policy import Level, Policy, Resource, Violation
from policies.unknowns import UnknownProperty

MAKE_KNOWN = (
    "a value known at preview: a constant or configuration instead of another resource's output, "
    "or an output of a layer that already stands"
)


@dataclass(frozen=True)
class Finding:
    """What one policy says about one resource."""

    policy: Policy
    level: Level
    resource: Resource
    violation: Violation
    exemption: Exemption | None = None
    """The one that covers it, expired or not."""

    @property
    def exempt(self) -> bool:
        """Whether an exemption that is current lets it pass."""
        return self.exemption is not None and not self.exemption.expired(self.resource.stack.today)

    @property
    def message(self) -> str:
        """The violation and its remedy; or why it is let pass."""
        if self.exempt:
            return f"{self.exemption}. {self.violation}"
        text = f"{self.violation}. {self.policy.remedy}"
        if self.exemption is not None:
            text += f" The exemption of {self.exemption.owner} expired on {self.exemption.expires}."
        return text


@dataclass
class Court:
    """The policies with the levels and parameters that were configured."""

    policies: Sequence[Policy]
    levels: Mapping[str, Level] = field(default_factory=dict)
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    used: set[Exemption] = field(default_factory=set)
    """Exemptions that covered something in this run."""

    def __post_init__(self) -> None:
        names = {policy.name for policy in self.policies}
        if unknown := sorted({*self.levels, *self.parameters} - names):
            raise ConfigError(
                f"policy configuration: got {', '.join(unknown)}; allowed: names of policies, or all"
            )
        self._concerned = cache(self._select)
        self.is_kept = cache(self._is_kept)
        self.repairing = any(self.level(policy) is Level.REMEDIATE for policy in self.policies)

    def level(self, policy: Policy) -> Level:
        """The configured level, or the policy's own."""
        return self.levels.get(policy.name, policy.level)

    def judge(self, resource: Resource, *, at_the_end: bool = False) -> Iterator[Finding]:
        """Findings of all policies that concern the resource's type: of one alone, or at the end of a run."""
        for policy, parameters in self._concerned(resource.type):
            if bool(policy.together_with) != at_the_end:
                continue
            exemption = self._exemption(policy, resource)
            concerned = replace(resource, parameters=parameters) if parameters else resource
            for violation in violations(policy, concerned):
                finding = Finding(
                    policy, self.level(policy), resource, violation.veiled(resource.secrets), exemption
                )
                yield replace(finding, level=Level.ADVISORY) if finding.exempt else finding

    def judge_together(self, neighbours: Neighbours) -> Iterator[Finding]:
        """Findings of the rules over several resources, when all of them are declared."""
        for resource in neighbours.resources:
            yield from self.judge(replace(resource, neighbours=neighbours), at_the_end=True)

    def repairs(self, resource: Resource) -> Iterator[tuple[Policy, Mapping[str, Any]]]:
        """Repairs of the policies whose level asks for them, each as property path → new value."""
        for policy, parameters in self._concerned(resource.type):
            if policy.remediate is None or self.level(policy) is not Level.REMEDIATE:
                continue
            exemption = self._exemption(policy, resource)
            if exemption is not None and not exemption.expired(resource.stack.today):
                continue
            try:
                patch = policy.remediate(replace(resource, parameters=parameters))
            except UnknownProperty:
                continue  # left to the judge, which refuses what it cannot see
            if patch:
                yield policy, patch

    def _select(self, resource_type: str) -> tuple[tuple[Policy, dict[str, Any]], ...]:
        return tuple(
            (policy, {**policy.defaults(), **self.parameters.get(policy.name, {})})
            for policy in self.policies
            if self.level(policy) is not Level.DISABLED
            and any(fnmatchcase(resource_type, pattern) for pattern in policy.types)
        )

    def _is_kept(self, resource_type: str) -> bool:
        """Whether a rule over several resources asks for resources of this type."""
        return any(
            fnmatchcase(resource_type, pattern)
            for policy in self.policies
            if policy.together_with and self.level(policy) is not Level.DISABLED
            for pattern in (*policy.types, *policy.together_with)
        )

    def _exemption(self, policy: Policy, resource: Resource) -> Exemption | None:
        for exemption in resource.stack.exemptions:
            if exemption.covers(policy.name, resource.type, resource.name):
                self.used.add(exemption)
                return exemption
        return None


def violations(policy: Policy, resource: Resource) -> Iterable[Violation]:
    """All violations of one policy; what it could not read, and its own failure, are violations too."""
    try:
        yield from policy.judge(resource)
    except UnknownProperty as unknown:
        yield Violation(unknown.path, "a value not known at preview", MAKE_KNOWN)
    except Exception as error:  # a judge that breaks must not let its resource pass
        yield Violation("policy", f"{type(error).__name__}: {error}", "a policy that can judge this resource")
