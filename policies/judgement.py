"""Judging one resource by every policy that concerns it, closed to doubt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from policies.exemptions import Exemption, PolicyConfigError
from policies.neighbours import Neighbours
from policies.policy import EnforcementLevel, Policy, Resource, Violation
from policies.previews import LONGEST_HOURS
from policies.unknowns import UnknownProperty

NOT_PREVIEWED = Violation(
    "update",
    f"no preview of the last {LONGEST_HOURS} hours in which it passed",
    "an update after a preview: `pulumi up` without `--skip-preview`",
)
"""Of a resource that a rule over several resources judges too late to keep an update from making it."""
MAKE_KNOWN = (
    "a value known at preview: a constant or configuration instead of another resource's output, "
    "or an output of a layer that already stands"
)


@dataclass(frozen=True)
class Finding:
    """What one policy says about one resource."""

    policy: Policy
    level: EnforcementLevel
    resource: Resource
    violation: Violation
    exemption: Exemption | None = None
    """The one that covers it, expired or not."""

    @property
    def exempt(self) -> bool:
        """Whether an exemption that is current lets it pass."""
        return self.exemption is not None and not self.exemption.expired(self.resource.stack.today)

    @property
    def stops(self) -> bool:
        """Whether it stops the run; a repair that did not help stops it too."""
        return self.level in (EnforcementLevel.MANDATORY, EnforcementLevel.REMEDIATE)

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
    levels: Mapping[str, EnforcementLevel] = field(default_factory=dict)
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    used: set[Exemption] = field(default_factory=set)
    """Exemptions that covered a violation in this run, or kept a repair from being made."""

    def __post_init__(self) -> None:
        names = {policy.name for policy in self.policies}
        if unknown := sorted({*self.levels, *self.parameters} - names):
            raise PolicyConfigError(
                f"policy configuration: got {', '.join(unknown)}; allowed: names of policies, or all"
            )
        self._concerned = cache(self._select)
        self.is_kept = cache(self._is_kept)
        self.repairing = any(self.level(policy) is EnforcementLevel.REMEDIATE for policy in self.policies)

    def level(self, policy: Policy) -> EnforcementLevel:
        """The configured level, or the policy's own."""
        return self.levels.get(policy.name, policy.level)

    def judge(self, resource: Resource) -> Iterator[Finding]:
        """Findings of all policies that concern the resource's type, before it is made.

        Rules over several resources cannot say anything yet: in an update, they refuse what has not passed
        them in a preview.
        """
        for policy, parameters in self._concerned(resource.type):
            if not policy.together_with:
                yield from self._findings(policy, resource, parameters)
            elif not (resource.stack.dry_run or (policy.name, resource.urn) in resource.stack.passed):
                yield self._finding(policy, resource, NOT_PREVIEWED)

    def judge_together(self, neighbours: Neighbours[Resource]) -> Iterator[Finding]:
        """Findings of the rules over several resources, when all of them are declared."""
        for policy, resource, parameters in self._together(neighbours):
            yield from self._findings(policy, replace(resource, neighbours=neighbours), parameters)

    def passed(
        self, neighbours: Neighbours[Resource], findings: Iterable[Finding]
    ) -> Iterator[tuple[str, str]]:
        """Rules over several resources, each with the URNs of those that it has nothing against."""
        refused = {(finding.policy.name, finding.resource.urn) for finding in findings if finding.stops}
        judged = ((policy.name, resource.urn) for policy, resource, _ in self._together(neighbours))
        return (each for each in judged if each not in refused)

    def _together(
        self, neighbours: Neighbours[Resource]
    ) -> Iterator[tuple[Policy, Resource, dict[str, Any]]]:
        for resource in neighbours.resources:
            for policy, parameters in self._concerned(resource.type):
                if policy.together_with:
                    yield policy, resource, parameters

    def _findings(self, policy: Policy, resource: Resource, parameters: dict[str, Any]) -> Iterator[Finding]:
        concerned = replace(resource, parameters=parameters) if parameters else resource
        for violation in violations(policy, concerned):
            yield self._finding(policy, resource, violation)

    def _finding(self, policy: Policy, resource: Resource, violation: Violation) -> Finding:
        """A violation with its level; one that is exempt is shown, and stops nothing."""
        exemption = self._exemption(policy, resource)
        veiled = violation.veiled(resource.secrets)
        finding = Finding(policy, self.level(policy), resource, veiled, exemption)
        return replace(finding, level=EnforcementLevel.ADVISORY) if finding.exempt else finding

    def repairs(self, resource: Resource) -> Iterator[tuple[Policy, Mapping[str, Any]]]:
        """Repairs of the policies whose level asks for them, each as property path → new value."""
        for policy, parameters in self._concerned(resource.type):
            if policy.remediate is None or self.level(policy) is not EnforcementLevel.REMEDIATE:
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
            if self.level(policy) is not EnforcementLevel.DISABLED
            and any(fnmatchcase(resource_type, pattern) for pattern in policy.types)
        )

    def _is_kept(self, resource_type: str) -> bool:
        """Whether a rule over several resources asks for resources of this type."""
        return any(
            fnmatchcase(resource_type, pattern)
            for policy in self.policies
            if policy.together_with and self.level(policy) is not EnforcementLevel.DISABLED
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
