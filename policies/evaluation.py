"""Evaluates resources by the policies that name their type, applies exemptions, and collects repairs.

It fails closed: a value that is unknown at preview, and an exception in a policy, are violations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from policies.exemptions import Exemption, PolicyConfigError
from policies.policy import EnforcementLevel, Policy, Resource, Violation
from policies.previews import LONGEST_HOURS
from policies.related_resources import RelatedResources
from policies.unknowns import UnknownProperty

NOT_PREVIEWED = Violation(
    "update",
    f"no preview of the last {LONGEST_HOURS} hours in which it passed",
    "an update after a preview: `pulumi up` without `--skip-preview`",
)
"""Violation, in an update, of a resource that no recent preview has shown to pass a policy over several
resources. Such a policy runs at the end, when an update has already created the resource."""
MAKE_KNOWN = (
    "a value known at preview: a constant or configuration instead of another resource's output, "
    "or an output of a stack that already exists"
)


@dataclass(frozen=True)
class Finding:
    """The result of one policy for one resource."""

    policy: Policy
    level: EnforcementLevel
    resource: Resource
    violation: Violation
    exemption: Exemption | None = None
    """The exemption that covers the violation, expired or not."""

    @property
    def is_exempt(self) -> bool:
        """Whether an exemption that is current lets it pass."""
        return self.exemption is not None and not self.exemption.expired(self.resource.stack.today)

    @property
    def stops(self) -> bool:
        """Whether it stops the run; a repair that did not help stops it too."""
        return self.level in (EnforcementLevel.MANDATORY, EnforcementLevel.REMEDIATE)

    @property
    def message(self) -> str:
        """The violation and its remedy; or why it is let pass."""
        if self.is_exempt:
            return f"{self.exemption}. {self.violation}"
        text = f"{self.violation}. {self.policy.remedy}"
        if self.exemption is not None:
            text += f" The exemption of {self.exemption.owner} expired on {self.exemption.expires}."
        return text


@dataclass
class PolicyEvaluator:
    """Evaluates resources by the policies, at the configured levels and with the configured parameters."""

    policies: Sequence[Policy]
    levels: Mapping[str, EnforcementLevel] = field(default_factory=dict)
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    used: set[Exemption] = field(default_factory=set)
    """Exemptions that covered a violation or prevented a remediation in this run."""

    def __post_init__(self) -> None:
        names = {policy.name for policy in self.policies}
        if unknown := sorted({*self.levels, *self.parameters} - names):
            raise PolicyConfigError(
                f"policy configuration: got {', '.join(unknown)}; allowed: names of policies, or all"
            )
        self._concerned = cache(self._select)
        self.is_related = cache(self._is_related)
        self.repairing = any(self.level(policy) is EnforcementLevel.REMEDIATE for policy in self.policies)

    def level(self, policy: Policy) -> EnforcementLevel:
        """The configured level, or the policy's own."""
        return self.levels.get(policy.name, policy.level)

    def evaluate(self, resource: Resource) -> Iterator[Finding]:
        """Yield findings of all policies for the resource's type, before it is created.

        Policies over several resources run in `evaluate_stack`. In an update they refuse here what has not
        passed them in a preview.
        """
        for policy, parameters in self._concerned(resource.type):
            if not policy.together_with:
                yield from self._findings(policy, resource, parameters)
            elif not (resource.stack.dry_run or (policy.name, resource.urn) in resource.stack.passed):
                yield self._finding(policy, resource, NOT_PREVIEWED)

    def evaluate_stack(self, related_resources: RelatedResources[Resource]) -> Iterator[Finding]:
        """Yield findings of the policies over several resources, once all resources are declared."""
        for policy, resource, parameters in self._together(related_resources):
            yield from self._findings(
                policy, replace(resource, related_resources=related_resources), parameters
            )

    def passed(
        self, related_resources: RelatedResources[Resource], findings: Iterable[Finding]
    ) -> Iterator[tuple[str, str]]:
        """Yield (policy name, URN) of what passed the policies over several resources."""
        refused = {(finding.policy.name, finding.resource.urn) for finding in findings if finding.stops}
        evaluated = ((policy.name, resource.urn) for policy, resource, _ in self._together(related_resources))
        return (each for each in evaluated if each not in refused)

    def _together(
        self, related_resources: RelatedResources[Resource]
    ) -> Iterator[tuple[Policy, Resource, dict[str, Any]]]:
        for resource in related_resources.resources:
            for policy, parameters in self._concerned(resource.type):
                if policy.together_with:
                    yield policy, resource, parameters

    def _findings(self, policy: Policy, resource: Resource, parameters: dict[str, Any]) -> Iterator[Finding]:
        concerned = replace(resource, parameters=parameters) if parameters else resource
        for violation in violations(policy, concerned):
            yield self._finding(policy, resource, violation)

    def _finding(self, policy: Policy, resource: Resource, violation: Violation) -> Finding:
        """Return the violation with its level; an exempt one becomes advisory."""
        exemption = self._exemption(policy, resource)
        veiled = violation.veiled(resource.secrets)
        finding = Finding(policy, self.level(policy), resource, veiled, exemption)
        return replace(finding, level=EnforcementLevel.ADVISORY) if finding.is_exempt else finding

    def repairs(self, resource: Resource) -> Iterator[tuple[Policy, Mapping[str, Any]]]:
        """Yield patches (property path → new value) of the policies whose level is `remediate`."""
        for policy, parameters in self._concerned(resource.type):
            if policy.remediate is None or self.level(policy) is not EnforcementLevel.REMEDIATE:
                continue
            exemption = self._exemption(policy, resource)
            if exemption is not None and not exemption.expired(resource.stack.today):
                continue
            try:
                patch = policy.remediate(replace(resource, parameters=parameters))
            except UnknownProperty:
                continue  # `evaluate` reports it
            if patch:
                yield policy, patch

    def _select(self, resource_type: str) -> tuple[tuple[Policy, dict[str, Any]], ...]:
        return tuple(
            (policy, {**policy.defaults(), **self.parameters.get(policy.name, {})})
            for policy in self.policies
            if self.level(policy) is not EnforcementLevel.DISABLED
            and any(fnmatchcase(resource_type, pattern) for pattern in policy.types)
        )

    def _is_related(self, resource_type: str) -> bool:
        """Whether a policy over several resources names this type."""
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
    """Return all violations of one policy; an unknown value and an exception are violations too."""
    try:
        yield from policy.evaluate(resource)
    except UnknownProperty as unknown:
        yield Violation(unknown.path, "a value not known at preview", MAKE_KNOWN)
    except Exception as error:  # fails closed
        yield Violation(
            "policy", f"{type(error).__name__}: {error}", "a policy that can evaluate this resource"
        )
