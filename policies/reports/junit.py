"""Formats a policy run's report as JUnit XML, with one test case per policy."""

import re
from typing import Final
from xml.etree import ElementTree

from policies.reports.report import PolicyReport

_FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: PolicyReport) -> str:
    """A policy fails with all its violations; advice and exemptions are its output."""
    suite = ElementTree.Element("testsuite", name=f"policies of {report.project}/{report.stack}")
    failed = {finding.policy.name for finding in report.violations}
    suite.set("tests", str(len(report.policies)))
    suite.set("failures", str(len(failed)))
    suite.set("errors", "0")
    for policy in report.policies:
        case = ElementTree.SubElement(suite, "testcase", classname=topic(policy.name), name=policy.title)
        own = [finding for finding in report.violations if finding.policy is policy]
        if own:
            lines = [f"{finding.resource.urn}: {finding.message}" for finding in own]
            more = f" (and {len(own) - 1} more)" if len(own) > 1 else ""
            # CI pages show a failure's message first, and its text on request.
            headline = f"{own[0].resource.name}: {own[0].violation}{more}"
            failure = ElementTree.SubElement(case, "failure", message=_clean(headline), type=policy.severity)
            failure.text = _clean("\n".join(lines))
        others = (*report.deferred, *report.advice, *report.exempt_findings)
        messages = [finding for finding in others if finding.policy is policy]
        if messages:
            output = ElementTree.SubElement(case, "system-out")
            output.text = _clean(
                "\n".join(f"{finding.resource.urn}: {finding.message}" for finding in messages)
            )
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)


def _clean(text: str) -> str:
    """Replace characters that XML 1.0 cannot represent, since a property may contain any."""
    return _FORBIDDEN.sub("\ufffd", text)


def topic(policy: str) -> str:
    """Return the first part of a policy's name: `residency` of `residency-region`."""
    return policy.partition("-")[0]
