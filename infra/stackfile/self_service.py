"""The stack file's `self_service` section: limits of teams in files, who approves more, and a team's end."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from infra.stackfile.base import NonNegative, Positive, Spec

if TYPE_CHECKING:
    from infra.stackfile.source import SpecSource
    from infra.stackfile.stack import Stack

_WARNED_DAYS = 14
"""Days before a team's last one from which on users are warned."""


class SelfServiceSpec(Spec):
    """Limits of a team in a file (`teams_from`), above which the platform's owners approve."""

    approvers: Annotated[tuple[str, ...], Field(min_length=1)] = Field(
        description="who approves a team above a limit, as the pull request names them: @org/platform"
    )
    max_quota: NonNegative | None = Field(
        default=None, description="limit of the accelerators of a team's `quota`, over all pools"
    )
    max_days: Positive | None = Field(
        default=None, description="limit of the days from today to the day on which a team expires"
    )
    grace_days: NonNegative = Field(
        default=14, description="days from a team's `closed` until its file may be deleted"
    )


def today() -> date:
    """Return the day by which teams expire, in UTC."""
    return datetime.now(UTC).date()


def expiry_warnings(stack: Stack) -> Iterator[str]:
    """Yield a sentence for each team whose last day is near, or over."""
    for team in stack.teams:
        days = (team.expires - today()).days if team.expires and not team.closed else _WARNED_DAYS + 1
        if days <= _WARNED_DAYS:
            when = f"expires in {days} days, on" if days >= 0 else "admits no job: it expired on"
            yield f"team {team.name} {when} {team.expires}; `trainyard team renew {team.name} --until DATE`"


def approvals(stack: Stack, source: SpecSource, changed: Collection[Path] | None = None) -> Iterator[str]:
    """Yield each value of a team's file that is above a limit, with its position, and who must approve it.

    `changed` are the files of interest; None: all of them.
    """
    if (limits := stack.self_service) is None:
        return
    for path, part in source.parts.items():
        team = stack.teams[int(path[1])]
        if team.closed or (changed is not None and Path(part.label).resolve() not in changed):
            continue
        days = (team.expires - today()).days if team.expires else sys.maxsize
        amounts = {
            "quota": ("accelerators", sum((team.quota or {}).values()), limits.max_quota),
            "expires": ("days until it expires", days, limits.max_days),
        }
        for key, (what, number, most) in amounts.items():
            if most is not None and number > most:
                got = f"{number} {what}" if number < sys.maxsize else "no day on which it expires"
                who = f"needs the approval of {', '.join(limits.approvers)}"
                yield f"{part.location((key,))}: team {team.name}: {got}, above {most}: {who}"
