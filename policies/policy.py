"""The types of which a policy consists: `Policy` (a rule's metadata, and a pure function from a resource to
its violations), `Resource`, `Violation`, severities and enforcement levels.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from policies.config import EvaluatedStack
from policies.related_resources import RelatedResources
from policies.unknowns import PropertyBlock


class Severity(StrEnum):
    """Severity of a violation, as the engine shows it."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


class EnforcementLevel(StrEnum):
    """Effect of a violation: nothing, a message, an error, or a remediation (an error if that fails)."""

    DISABLED = "disabled"
    ADVISORY = "advisory"
    MANDATORY = "mandatory"
    REMEDIATE = "remediate"


@dataclass(frozen=True)
class Provider:
    """The provider that a resource is made with."""

    type: str = ""
    name: str = ""
    props: PropertyBlock = field(default_factory=PropertyBlock)


@dataclass(frozen=True)
class Resource:
    """One resource as the program declares it, before anything is made."""

    type: str
    """Type token: `aws:s3/bucket:Bucket`."""
    name: str
    urn: str = ""
    props: PropertyBlock = field(default_factory=PropertyBlock)
    provider: Provider = field(default_factory=Provider)
    stack: EvaluatedStack = field(default_factory=EvaluatedStack)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the policy that evaluates it, with its schema's defaults."""
    protect: bool = False
    secrets: tuple[str, ...] = ()
    """Paths of secret properties: policies read them, messages do not show them."""
    related_resources: "RelatedResources[Resource]" = field(default_factory=RelatedResources, compare=False)
    """Resources of the run that policies may look up; empty before the end of the run."""

    def given(self, parameters: Mapping[str, Any]) -> "Resource":
        """The same resource with parameters; `dataclasses.replace` takes ten times as long."""
        other = object.__new__(Resource)
        other.__dict__.update(self.__dict__, parameters=parameters)
        return other


@dataclass(frozen=True)
class Violation:
    """A violation of a policy: path, found value, allowed values."""

    property: str
    got: object
    allowed: str
    is_deferred: bool = False
    """Whether the value is not known yet, and the update judges it."""
    is_advice: bool = False
    """Whether it is reported only, whatever the policy's level."""

    def veiled(self, secrets: tuple[str, ...]) -> "Violation":
        """The same violation; what was found is left out where it is, is in, or holds a secret."""
        if any(is_within(self.property, secret) or is_within(secret, self.property) for secret in secrets):
            return replace(self, got="[secret]")
        return self

    def __str__(self) -> str:
        if self.is_deferred:
            return f"{self.property}: {self.got}: {self.allowed}"
        return f"{self.property}: got {self.got}; allowed: {self.allowed}"


def is_within(path: str, outer: str) -> bool:
    """Whether a property is the outer one, or a part of it."""
    return path == outer or path.startswith((f"{outer}.", f"{outer}["))


PolicyFunction = Callable[[Resource], Iterable[Violation]]


@dataclass(frozen=True)
class Policy:
    """A policy: metadata for readers and the engine, and the function that evaluates a resource."""

    name: str
    """Unique name in lower case with dashes, by which configuration and exemptions refer to the policy."""
    title: str
    """The rule in one sentence."""
    reason: str
    """Why the rule exists, in a sentence or two."""
    remedy: str
    """Next step after a violation."""
    types: tuple[str, ...]
    """Patterns of the type tokens that the policy evaluates, such as `aws:ec2/*`."""
    evaluate: PolicyFunction
    severity: Severity = Severity.HIGH
    level: EnforcementLevel = EnforcementLevel.MANDATORY
    """Default enforcement level; configuration may change it."""
    frameworks: tuple[str, ...] = ()
    """Controls that the policy implements, such as `NIST SP 800-53 SC-28`."""
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """JSON schema of each parameter, with its default."""
    together_with: tuple[str, ...] = ()
    """Patterns of related types that the policy looks up. Such a policy runs at the end of a preview and of
    an update, when all resources are declared."""
    remediate: Callable[[Resource], Mapping[str, Any]] | None = None
    """Function that returns a safe repair: property path → new value; empty where there is nothing to
    repair."""

    def defaults(self) -> dict[str, Any]:
        """Parameters as they are when nothing is configured."""
        return {name: schema["default"] for name, schema in self.parameters.items() if "default" in schema}


def parameter(kind: str, default: object, description: str, **schema: object) -> dict[str, Any]:
    """The JSON schema of a parameter, with its default."""
    return {"type": kind, "default": default, "description": description, **schema}


def texts(description: str, *default: str) -> dict[str, Any]:
    """The schema of a parameter that is a list of names or patterns."""
    return parameter("array", [*default], description, items={"type": "string"})
