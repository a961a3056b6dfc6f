"""`trainyard stack unlock`: says who holds a stack's lock, and releases it once that run is over."""

import os
import re
from collections.abc import Mapping

import httpx

from engine.recovery import holder_of, is_dead_here
from infra.errors import Problem, TrainyardError
from trainyard.stack.session import Session

RUN = "trainyard:run"
"""Tag of a stack: URL of the pipeline's run that began its last `up`, and the host."""
_GITHUB = re.compile(r"https://[^/]+/([^/]+/[^/]+/actions/runs/\d+/attempts/\d+)")
_GITLAB = re.compile(r"https://[^/]+/(.+)/-/jobs/(\d+)")
_OVER = frozenset({"completed", "success", "failed", "canceled", "skipped"})
"""Status of a run on GitHub ("Get a workflow run attempt") and of a job on GitLab ("Get a single job")."""
_ANSWER_SECONDS = 30


def check_unlocked(session: Session) -> None:
    """Raise TrainyardError if the stack is locked, with the holder and its run."""
    held = _holders(session)
    if held:
        raise TrainyardError([_problem(session, held, "wait for it; if it was killed, run the job `unlock`")])


def release_lock(session: Session, *, is_over: bool) -> None:
    """Release the lock and settle what its engine has left. Raises TrainyardError if its run goes on."""
    held = _holders(session)
    for holder, has_ended in held.items():
        session.console.print(f"locked by {holder}", highlight=False, soft_wrap=True)
        if not has_ended and not is_over:
            fix = "wait for it; if you have seen that it has ended: trainyard stack unlock --over"
            raise TrainyardError([_problem(session, held, fix)])
    if held:
        session.project_engine.release(session.stack_name)
    else:
        session.project_engine.recover(session.stack_name)
    done = f"released {len(held)}" if held else "it was not locked"
    session.console.print(f"unlock {session.stack_name}: {done}; the next `up` continues", highlight=False)


def _holders(session: Session) -> dict[str, bool]:
    """Return the holders of the lock, each with whether it is known to have ended."""
    locks = session.project_engine.locks(session.stack_name)
    run, _, host = (session.project_engine.tag(session.stack_name, RUN) if locks else "").rpartition(" ")
    found = {}
    for lock in locks:
        of_run = run if host == lock["hostname"] else ""
        name = f"{holder_of(lock)}{f', {of_run}' if of_run else ''}"
        found[name] = is_dead_here(lock) or has_ended(of_run, os.environ)
    return found


def has_ended(run: str, environ: Mapping[str, str]) -> bool:
    """Whether a pipeline's run has ended, as its service says; False where it does not say so."""
    if found := _GITHUB.fullmatch(run):
        url = f"{environ.get('GITHUB_API_URL', 'https://api.github.com')}/repos/{found[1]}"
        headers = {"Authorization": f"Bearer {environ.get('GITHUB_TOKEN', '')}"}
    elif (found := _GITLAB.fullmatch(run)) and environ.get("CI_PROJECT_PATH") == found[1]:
        url = f"{environ['CI_API_V4_URL']}/projects/{environ['CI_PROJECT_ID']}/jobs/{found[2]}"
        headers = {"PRIVATE-TOKEN": environ.get("UNLOCK_TOKEN", "")}
    else:
        return False
    try:
        answer = httpx.get(url, headers=headers, timeout=_ANSWER_SECONDS)
    except httpx.HTTPError:
        return False
    return answer.is_success and answer.json()["status"] in _OVER


def _problem(session: Session, held: Mapping[str, bool], fix: str) -> Problem:
    return Problem(
        f"lock of stack {session.stack_name}", f"held by {'; '.join(held)}", "no holder that runs", fix
    )
