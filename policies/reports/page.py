"""Formats a policy run's report as one HTML page."""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from html import escape
from itertools import groupby

from policies.evaluation import Finding
from policies.policy import Severity
from policies.reports.report import PolicyReport

STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --quiet: #888;
--bad: light-dark(#c62828, #ff8a80); --warn: light-dark(#b25d00, #ffb74d);
--good: light-dark(#2e7d32, #81c784); }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
.verdict { font-weight: 600; } .bad { color: var(--bad); } .good { color: var(--good); }
article { border: 1px solid var(--line); border-radius: .5rem; padding: .8rem 1rem; margin: .8rem 0; }
article h3 { margin: 0; font-size: 1rem; } article p { margin: .3rem 0; }
table { border-collapse: collapse; width: 100%; table-layout: fixed; }
td, th { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line);
vertical-align: top; overflow-wrap: anywhere; }
code { background: var(--soft); padding: 0 .2rem; font-size: .92em; } ul.count { display: flex; gap: 1rem;
list-style: none; padding: 0; } ul.count b { font-size: 1.4rem; display: block; }
th:nth-child(-n + 2) { width: 26%; } th:nth-child(3) { width: 17%; } small { color: var(--quiet); }
.critical { border-left: .3rem solid var(--bad); } .high { border-left: .3rem solid var(--warn); }
ul.contents { columns: 24rem; column-gap: 2rem; padding-left: 1.2rem; } a { color: inherit; }
@media (max-width: 45rem) { tr:has(th) { display: none; } tr { border-bottom: 1px solid var(--line); }
tr, td { display: block; } td { border: 0; padding: .1rem 0; }
td[title]::before { content: attr(title) ": "; color: var(--quiet); } }
.tag { font-size: .8rem; border: 1px solid var(--line); border-radius: 1rem; font-weight: 400;
padding: 0 .6rem; margin-left: .5rem; }
"""

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
    head = f'<meta charset="utf-8">{phone}<title>{title}</title><style>{STYLE}</style>'
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
