"""`PolicyReport`: the violations, advice and exempt findings of one policy run, as plain data."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from policies.evaluation import Finding
from policies.exemptions import Exemption
from policies.policy import Policy


@dataclass(frozen=True)
class PolicyReport:
    """Policies, evaluated resources and findings of one run."""

    project: str
    stack: str
    num_resources: int
    policies: Sequence[Policy]
    findings: Sequence[Finding]
    unused: Sequence[Exemption]
    """Exemptions that covered no violation."""
    is_preview: bool = True
    at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def violations(self) -> list[Finding]:
        """Findings that stop the run."""
        return [finding for finding in self.findings if finding.stops]

    @property
    def deferred(self) -> list[Finding]:
        """Findings whose values are not known at preview: the update judges them."""
        return [f for f in self.findings if f.violation.is_deferred and not f.is_exempt]

    @property
    def advice(self) -> list[Finding]:
        """Advisory findings, without the exempt and the deferred ones."""
        return [f for f in self.findings if not (f.stops or f.is_exempt or f.violation.is_deferred)]

    @property
    def exempt_findings(self) -> list[Finding]:
        """Findings that a current exemption covers: they do not stop the run."""
        return [finding for finding in self.findings if finding.is_exempt]

    def data(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "project": self.project,
            "stack": self.stack,
            "run": "preview" if self.is_preview else "update",
            "at": self.at.isoformat(timespec="seconds"),
            "resources": self.num_resources,
            "policies": len(self.policies),
            "passed": not self.violations,
            "violations": [_plain(finding) for finding in self.violations],
            "deferred": [_plain(finding) for finding in self.deferred],
            "advice": [_plain(finding) for finding in self.advice],
            "exempt": [_plain(finding) for finding in self.exempt_findings],
            "unusedExemptions": [f"{e.policy} {e.resource} ({e.owner})" for e in self.unused],
        }


def _plain(finding: Finding) -> dict[str, Any]:
    data: dict[str, Any] = {
        "policy": finding.policy.name,
        "severity": finding.policy.severity.value,
        "resource": finding.resource.urn,
        "type": finding.resource.type,
        "property": finding.violation.property,
        "got": f"{finding.violation.got}",
        "allowed": finding.violation.allowed,
        "remedy": finding.policy.remedy,
        "exempt_by": finding.exemption_text,
    }
    if finding.is_exempt:
        data["exemption"] = f"{finding.exemption}"
    return data
