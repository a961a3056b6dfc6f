"""Generates the docs' table of all policies from their metadata: `python -m policies.catalogue`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from policies.pack import POLICIES, TOPICS
from policies.policy import Policy

PAGE = Path(__file__).resolve().parent.parent / "docs" / "policies.md"
BEGIN, END = "<!-- policies: begin -->", "<!-- policies: end -->"


def tables() -> str:
    """One table per topic."""
    return "\n".join(line for topic in TOPICS for line in _table(topic))


def updated(page: str) -> str:
    """The page with the tables between its markers made anew."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"


def _table(topic: str) -> Iterator[str]:
    yield f"### {topic.capitalize()}\n"
    yield "| policy | rule and reason | severity, level | what to do | serves |"
    yield "|---|---|---|---|---|"
    for policy in POLICIES:
        if policy.evaluate.__module__.split(".")[1] == topic:
            yield _row(policy)
    yield ""


def _row(policy: Policy) -> str:
    name = f"`{policy.name}`"
    if policy.parameters:
        name += "<br>" + "<br>".join(f"· `{parameter}`" for parameter in policy.parameters)
    level = f"{policy.level}, can remediate" if policy.remediate else policy.level
    cells = (
        name,
        f"**{policy.title}.** {policy.reason}",
        f"{policy.severity}, {level}",
        policy.remedy,
        "; ".join(policy.frameworks),
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(f"{PAGE}: {len(POLICIES)} policies\n")
