"""Generates the docs' list of all policies from their metadata: `python -m policies.catalogue`."""

import sys
from collections.abc import Iterator
from pathlib import Path

from policies.pack import POLICIES, TOPICS
from policies.policy import Policy

PAGE = Path(__file__).resolve().parent.parent / "docs" / "policies.md"
BEGIN, END = "<!-- policies: begin -->", "<!-- policies: end -->"


def tables() -> str:
    """One list per topic."""
    return "\n".join(line for topic in TOPICS for line in _table(topic))


def updated(page: str) -> str:
    """The page with the lists between its markers made anew."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"


def _table(topic: str) -> Iterator[str]:
    yield f"### {topic.capitalize()}\n"
    for policy in POLICIES:
        if policy.evaluate.__module__.split(".")[1] == topic:
            yield _entry(policy)
    yield ""


def _entry(policy: Policy) -> str:
    level = f"{policy.level}, can remediate" if policy.remediate else policy.level
    parameters = "; ".join(f"`{parameter}`" for parameter in policy.parameters)
    return (
        f"- **`{policy.name}`**: {policy.title}. {policy.reason} *{policy.remedy}*"
        f" ({policy.severity}, {level}{parameters and f'; parameters {parameters}'})"
        f" {'; '.join(policy.frameworks)}"
    )


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(f"{PAGE}: {len(POLICIES)} policies\n")
