"""Evaluates resources by the policies that name their type, applies exemptions, and collects repairs.

A policy has three answers: refused, passed, and deferred, where it needs a value that is not known at
preview. The same policy judges that value in the update, before the resource is created. An exception in a
policy is a violation.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from policies.config import DEFER, REFUSE
from policies.exemptions import Exemption, PolicyConfigError
from policies.policy import EnforcementLevel, Policy, Resource, Violation
from policies.related_resources import RelatedResources
from policies.rules import NOT_KNOWN
from policies.unknowns import UnknownProperty

JUDGED_LATER = "judged in the update, before it is created; an update that is refused then stops half way"
JUDGED_LAST = "judged at the end of the update, when it exists"
MAKE_KNOWN = (
    "a value known at preview: a constant or configuration instead of another resource's output, "
    "or an output of a stack that already exists"
)
UNKNOWN_PARAMETER: Mapping[str, Mapping[str, Any]] = {
    "unknown": {
        "type": "string",
        "enum": [DEFER, REFUSE],
        "description": "Whether a value that is not known at preview is deferred to the update, or refused.",
    }
}
"""Parameter of every policy."""


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
    def offer(self) -> list[str]:
        """The narrowest exemption that would cover the violation, and where to read on."""
        if self.violation.is_deferred or (self.is_exempt and self.exemption and self.exemption.is_narrow):
            return []
        text = self.exemption_text
        if self.is_exempt:
            return [f"The exemption covers every violation of the resource; narrower: {text}"]
        return [f"Exemption to copy: {text} (docs/policies.md#exemptions)"] if self.stops else []

    @property
    def exemption_text(self) -> str:
        """An exemption from this finding alone, for its owner to complete."""
        fields = {
            "policy": self.policy.name,
            "resource": f"{self.resource.type}::{self.resource.name}",
            "property": self.violation.property,
            "got": f"{self.violation.got}",
        }
        quoted = ", ".join(f"{name}: {json.dumps(text, ensure_ascii=False)}" for name, text in fields.items())
        return f"{{{quoted}, owner: …, reason: …, expires: …}}"

    @property
    def message(self) -> str:
        """The violation and its remedy; or why it is let pass."""
        if self.is_exempt:
            return f"{self.exemption}. {self.violation}"
        text = f"{self.violation}. {self.policy.remedy}"
        if self.violation.is_deferred:
            return f"{self.violation}."
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
        known = {policy.name for policy in self.policies}
        if unknown := sorted({*self.levels, *self.parameters} - known):
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

        Policies over several resources run in `evaluate_stack`.
        """
        for policy, parameters in self._concerned(resource.type):
            if not policy.together_with:
                yield from self._findings(policy, resource, parameters)
        resource.stack.declared.add(resource.type, resource.name, resource.props.data)

    def evaluate_stack(self, related_resources: RelatedResources[Resource]) -> Iterator[Finding]:
        """Yield findings of the policies over several resources, once all resources are declared."""
        for resource in related_resources.resources:
            beside = replace(resource, related_resources=related_resources)
            for policy, parameters in self._concerned(resource.type):
                if policy.together_with:
                    yield from self._findings(policy, beside, parameters)

    def _findings(self, policy: Policy, resource: Resource, parameters: dict[str, Any]) -> Iterator[Finding]:
        concerned = resource.given(parameters) if parameters else resource
        for violation in violations(policy, concerned):
            yield self._finding(policy, resource, violation)

    def _finding(self, policy: Policy, resource: Resource, violation: Violation) -> Finding:
        """Return the violation with its level; an exempt one, and a deferred one, become advisory."""
        veiled = violation.veiled(resource.secrets)
        exemption = self._exemption(policy, resource, veiled)
        finding = Finding(policy, self.level(policy), resource, veiled, exemption)
        is_advice = finding.is_exempt or violation.is_deferred or violation.is_advice
        return replace(finding, level=EnforcementLevel.ADVISORY) if is_advice else finding

    def repairs(self, resource: Resource) -> Iterator[tuple[Policy, Mapping[str, Any]]]:
        """Yield patches (property path → new value) of the policies whose level is `remediate`."""
        for policy, parameters in self._concerned(resource.type):
            if policy.remediate is None or self.level(policy) is not EnforcementLevel.REMEDIATE:
                continue
            found = self._findings(policy, resource, parameters)
            if not any(finding.stops for finding in found):
                continue
            with suppress(UnknownProperty):  # `evaluate` reports it
                if patch := policy.remediate(resource.given(parameters)):
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

    def _exemption(self, policy: Policy, resource: Resource, violation: Violation) -> Exemption | None:
        name, got = f"{resource.type}::{resource.name}", f"{violation.got}"
        for exemption in resource.stack.exemptions:
            if exemption.covers(policy.name, name, violation.property, got):
                self.used.add(exemption)
                return exemption
        return None


def violations(policy: Policy, resource: Resource) -> list[Violation]:
    """The violations of one policy, each once; an exception is one too, and an unknown value defers."""
    found: list[Violation] = []
    try:
        found.extend(policy.evaluate(resource))
    except UnknownProperty as unknown:
        found.append(Violation(unknown.path, NOT_KNOWN, "", is_deferred=True))
    except Exception as error:  # fails closed
        got, allowed = f"{type(error).__name__}: {error}", "a policy that can evaluate this resource"
        found.append(Violation("policy", got, allowed))
    if not found:
        return found
    stack = resource.stack
    defers = stack.dry_run and not stack.refuses_unknown and resource.parameters.get("unknown") != REFUSE
    later = JUDGED_LAST if policy.together_with else JUDGED_LATER
    marked = (
        replace(each, allowed=later if defers else MAKE_KNOWN, is_deferred=defers)
        if each.is_deferred
        else each
        for each in found
    )
    return list({str(each): each for each in marked}.values())
