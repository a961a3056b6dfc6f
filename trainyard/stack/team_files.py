"""`trainyard team new`, `renew` and `close`: write or change one team's file, and no other one; and who must
approve a change of such files.
"""

import re
import subprocess
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import yaml

from infra.errors import InputError, Problem
from infra.stackfile import load
from infra.stackfile.defaults import completed
from infra.stackfile.self_service import approvals, today
from infra.stackfile.source import STACK_KEY, read, read_config
from trainyard.stack.session import Session

_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")


def new_team(session: Session, name: str, keys: Mapping[str, Any], quota: str) -> None:
    """Write a team's file. Raises InputError with all that is wrong with it; nothing is written then.

    `quota` is a number of accelerators, where the team's queue has one pool, or POOL=NUMBER, ….
    """
    file = _file(session, name)
    if file.exists():
        raise InputError([Problem("NAME", f"{file}, which exists", "a new team", "name another, or edit it")])
    content = {"name": name, **{key: value for key, value in keys.items() if value}}
    if quota:
        content["quota"] = _quota(session, quota, keys["queue"])
    _write(session, file, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
    _show_next(session, file, f"Add team {name}", "its namespace, quotas and rights come with the next `up`")


def renew_team(session: Session, name: str, until: date) -> None:
    """Set the day on which a team expires. Raises InputError for a day that is over."""
    if until < today():
        raise InputError([Problem("--until", str(until), f"{today()} or later", "name a day to come")])
    file = _file(session, name, exists=True)
    _set_day(session, file, "expires", until)
    _show_next(session, file, f"Renew team {name}", f"with the next `up` its jobs are admitted until {until}")


def close_team(session: Session, name: str) -> None:
    """Close a team: no further job is admitted, and its quota is 0. Its file stays for the time of grace."""
    file = _file(session, name, exists=True)
    _set_day(session, file, "closed", today())
    limits = load(session.stack_file).self_service
    over = today() + timedelta(limits.grace_days if limits else 0)
    then = f"when nothing of it runs, from {over} on: git rm {file}; `up` deletes {name}'s namespace then"
    _show_next(session, file, f"Close team {name}", f"the next `up` admits no job of it; {then}")


def needed_approvals(session: Session, since: str = "") -> list[str]:
    """Return who must approve what of the team files that differ from a commit; without one, of all.

    Raises InputError for a commit that git does not know.
    """
    changed = _changed_since(session, since) if since else None
    return [*approvals(session.stack, read(session.stack_file)[1], changed)]


def _changed_since(session: Session, commit: str) -> set[Path]:
    folder = session.stack_file.parent.resolve()
    command = ["git", "diff", "--name-only", "--relative", "-z", commit, "--", "."]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if found.returncode:
        fix = "name a commit that this clone has; a shallow clone lacks earlier ones"
        raise InputError([Problem("--since", commit, "a commit", fix, found.stderr.strip())])
    return {folder / name for name in found.stdout.split("\0") if name}


def _file(session: Session, name: str, *, exists: bool = False) -> Path:
    """Return a team's file. Raises InputError where the stack has no folder of them, or no such file."""
    folder = (read_config(session.stack_file).get(STACK_KEY) or {}).get("teams_from")
    if not folder:
        fix = "add `teams_from: teams` to it; its own teams stay where they are"
        raise InputError([Problem(str(session.stack_file), "no `teams_from`", "a folder of team files", fix)])
    if not _NAME.fullmatch(name):
        raise InputError([Problem("NAME", name, "lower-case letters, digits and -", "name it otherwise")])
    file = session.stack_file.parent / str(folder) / f"{name}.yaml"
    if exists and not file.exists():
        known = ", ".join(each.stem for each in sorted(file.parent.glob("*.yaml"))) or "none"
        raise InputError([Problem("NAME", name, known, f"name one of these; there is no {file}")])
    return file


def _quota(session: Session, quota: str, queue: str) -> dict[str, int]:
    """Read `--quota`. Raises InputError for a number alone where the queue has several pools."""
    queues = completed(read(session.stack_file)[0]).data.get("queues") or []
    found: Mapping[str, Any] = next((each for each in queues if queue in {"", each.get("name")}), {})
    pools = [str(each.get("pool")) for each in found.get("flavors") or ()]
    parts = [part.rpartition("=") for part in quota.split(",")]
    named = {pool or "".join(pools[:1] if len(pools) == 1 else ()): number for pool, _, number in parts}
    if "" in named or not all(number.isdecimal() for number in named.values()):
        allowed = f"NUMBER, or POOL=NUMBER,… with pools of the queue: {', '.join(pools)}"
        raise InputError([Problem("--quota", quota, allowed, "name the pool, and how many accelerators")])
    return {pool: int(number) for pool, number in named.items()}


def _set_day(session: Session, file: Path, key: str, day: date) -> None:
    """Write a day into a team's file, in place of the key's line, or behind the others."""
    before, line = file.read_text(encoding="utf-8"), f"{key}: {day}"
    text, number = re.subn(rf"^{key}:.*$", line, before, flags=re.MULTILINE)
    _write(session, file, text if number else f"{before.rstrip()}\n{line}\n")


def _write(session: Session, file: Path, text: str) -> None:
    """Write the file if the stack with it is valid. Raises InputError with all problems and their lines."""
    before = file.read_text(encoding="utf-8") if file.exists() else None
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    try:
        load(session.stack_file)
    except BaseException:  # Ctrl-C too
        file.unlink()
        if before is not None:
            file.write_text(before, encoding="utf-8")
        raise


def _show_next(session: Session, file: Path, title: str, then: str) -> None:
    branch = title.lower().replace(" ", "-")
    steps = (
        f"git switch -c {branch} && git add {file} && git commit -m {title!r} && git push -u origin {branch}"
    )
    needed = approvals(load(session.stack_file), read(session.stack_file)[1], {file.resolve()})
    for line in (f"{file}; after the merge {then}", steps, "then open a pull request", *needed):
        session.console.print(line, highlight=False, markup=False, soft_wrap=True)
