"""Formats a policy run's report as one HTML page."""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from policies.evaluation import Finding
from policies.policy import Severity
from policies.reports.report import PolicyReport

STYLE = Path(__file__).with_suffix(".css")
FEW = 4
"""Maximum number of violated policies without a table of contents."""
ORDER = list(reversed(Severity))


def page(report: PolicyReport) -> str:
    """Return the page: what was refused, by severity, deferred, exempt (by whom, until when), and passed."""
    sections = [
        _heading(report),
        _contents(report),
        "<h2>Refused</h2>" if report.violations else "",
        *(_article(list(group)) for _, group in groupby(_sorted(report.violations), _policy_name)),
        _table(
            "Deferred: the update judges these before it creates them, and may stop half way",
            ("policy", "resource", "property"),
            [(f.policy.title, f.resource.name, f.violation.property) for f in _sorted(report.deferred)],
        ),
        _table(
            "Exempt",
            ("policy", "resource", "violation", "by", "until", "reason"),
            [
                (f.policy.title, f.resource.name, f"{f.violation}", e.owner, f"{e.expires}", e.reason)
                for f in _sorted(report.exempt_findings)
                if (e := f.exemption)
            ],
        ),
        _table(
            "Advice",
            ("policy", "resource", "violation"),
            [(f.policy.title, f.resource.name, f.message) for f in _sorted(report.advice)],
        ),
        _unused(report),
        _in_order(report),
    ]
    title = f"Policies: {escape(report.project)}/{escape(report.stack)}"
    phone = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    head = f'<meta charset="utf-8">{phone}<title>{title}</title><style>\n{STYLE.read_text()}</style>'
    body = "\n".join(section for section in sections if section)
    body = f"<body>\n<h1>{title}</h1>\n{body}\n</body>"
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>{body}</html>\n'


def _heading(report: PolicyReport) -> str:
    run = f"{'Preview' if report.is_preview else 'Update'} of {report.at:%Y-%m-%d %H:%M} UTC"
    evaluated = f"{run}: {report.num_resources} resources evaluated by {len(report.policies)} policies."
    if not report.violations:
        return f'<p class="verdict good">No policy stops this run.</p><p>{evaluated}</p>'
    resources = {finding.resource.urn for finding in report.violations}
    text = f"{_number(report.violations, 'violation')} on {_number(resources, 'resource')}: the run stops."
    return f'<p class="verdict bad">{text}</p><p>{evaluated}</p>{_counts(report)}'


def _counts(report: PolicyReport) -> str:
    """Return the number of violations by severity, the worst first."""
    found = Counter(finding.policy.severity for finding in report.violations)
    items = "".join(f"<li><b>{found[severity]}</b>{severity}</li>" for severity in ORDER if found[severity])
    return f'<ul class="count">{items}</ul>'


def _contents(report: PolicyReport) -> str:
    """Links to the violated policies, where there are too many to see at once."""
    groups = [list(group) for _, group in groupby(_sorted(report.violations), _policy_name)]
    items = "".join(
        f'<li><a href="#{group[0].policy.name}">{escape(group[0].policy.title)}</a> ({len(group)})</li>'
        for group in groups
    )
    return f'<ul class="contents">{items}</ul>' if len(groups) > FEW else ""


def _article(findings: Sequence[Finding]) -> str:
    """One policy with all its violations: why, what to do, where."""
    policy = findings[0].policy
    rows = "".join(
        f"<tr><td><code>{escape(f.resource.name)}</code><br><small>{escape(f.resource.type)}</small></td>"
        f'<td title="property"><code>{escape(f.violation.property)}</code></td>'
        f'<td title="got">{escape(f"{f.violation.got}")}</td>'
        f'<td title="allowed">{_text(f.violation.allowed)}</td></tr>'
        for f in findings
    )
    exemptions = "".join(f"<p><code>{escape(f.exemption_text)}</code></p>" for f in findings)
    columns = "<tr><th>resource</th><th>property</th><th>got</th><th>allowed</th></tr>"
    return (
        f'<article class="{policy.severity}" id="{policy.name}"><h3>{escape(policy.title)}'
        f'<span class="tag">{policy.severity}</span><span class="tag">{policy.name}</span></h3>'
        f"<p>{_text(policy.reason)}</p>"
        f"<table>{columns}{rows}</table><p><b>What to do:</b> {_text(policy.remedy)}</p>"
        f"<details><summary>Exemptions to copy</summary>{exemptions}</details>"
        f"<p><small>{escape('; '.join(policy.frameworks))}</small></p></article>"
    )


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{column}</th>" for column in columns)
    cells = (
        "".join(f'<td title="{name}">{escape(text)}</td>' for name, text in zip(columns, row, strict=True))
        for row in rows
    )
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return f"<h2>{title}</h2><table><tr>{head}</tr>{body}</table>"


def _unused(report: PolicyReport) -> str:
    items = "".join(f"<li>{escape(f'{e.policy} for {e.resource}, {e.owner}')}</li>" for e in report.unused)
    return f"<h2>Exemptions that cover no violation: remove them</h2><ul>{items}</ul>" if items else ""


def _in_order(report: PolicyReport) -> str:
    found = {finding.policy.name for finding in report.findings}
    titles = [escape(policy.title) for policy in report.policies if policy.name not in found]
    items = "".join(f"<li>{title}</li>" for title in titles)
    return f"<h2>Passed</h2><details><summary>{len(titles)} policies</summary><ul>{items}</ul></details>"


def _text(text: str) -> str:
    """Escaped, with what stands between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _number(things: Collection[object], name: str) -> str:
    return f"{len(things)} {name}{'s'[len(things) == 1 :]}"


def _sorted(findings: Sequence[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda f: (ORDER.index(f.policy.severity), f.policy.name, f.resource.urn))


def _policy_name(finding: Finding) -> str:
    return finding.policy.name
