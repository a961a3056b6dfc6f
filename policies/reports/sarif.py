"""Formats a policy run's report as SARIF 2.1.0, for code scanning."""

import json
from typing import Any

from policies.evaluation import Finding
from policies.pack import NAME, VERSION
from policies.policy import Policy, Severity
from policies.reports.report import PolicyReport

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"

SCORES = {Severity.LOW: "3.0", Severity.MEDIUM: "5.5", Severity.HIGH: "8.0", Severity.CRITICAL: "9.5"}
"""Severity → middle of its band on the scale by which code scanning sorts."""


def sarif(report: PolicyReport) -> str:
    """One run; an exempt violation is a suppressed result."""
    driver = {"name": NAME, "version": VERSION, "rules": [_rule(policy) for policy in report.policies]}
    run = {
        "tool": {"driver": driver},
        # Code scanning separates the results of stacks by this ID.
        "automationDetails": {"id": f"policies/{report.project}/{report.stack}/"},
        "results": [_result(finding) for finding in report.findings],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _rule(policy: Policy) -> dict[str, Any]:
    return {
        "id": policy.name,
        "shortDescription": {"text": policy.title},
        "fullDescription": {"text": policy.reason},
        "help": {"text": policy.remedy},
        "properties": {"security-severity": SCORES[policy.severity], "tags": list(policy.frameworks)},
    }


def _result(finding: Finding) -> dict[str, Any]:
    name = {"fullyQualifiedName": finding.resource.urn, "name": finding.resource.name, "kind": "resource"}
    # Code scanning drops results without a file, and a resource has no file.
    location = {"artifactLocation": {"uri": "Pulumi.yaml"}}
    result: dict[str, Any] = {
        "ruleId": finding.policy.name,
        "level": "error" if finding.stops else "note",
        "message": {"text": f"{finding.resource.name}: {finding.message}"},
        "locations": [{"physicalLocation": location, "logicalLocations": [name]}],
        "partialFingerprints": {"resource": f"{finding.resource.urn}#{finding.violation.property}"},
    }
    if finding.is_exempt:
        justification = f"{finding.exemption}"
        result["suppressions"] = [{"kind": "external", "status": "accepted", "justification": justification}]
    return result
