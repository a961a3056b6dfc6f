"""Who holds a stack's lock, and when it is released."""

import socket
from collections.abc import Iterator
from io import StringIO
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from engine.recovery import locks_in
from infra.errors import TrainyardError
from tests.servers import QuietHandler, serving
from trainyard.stack.session import Session
from trainyard.stack.unlock import check_unlocked, release_lock

RUN = "https://github.com/team/research/actions/runs/7/attempts/2"
JOB = "https://gitlab.com/group/project/-/jobs/5"
ENGINE = """error: the stack is currently locked by 1 lock(s). Either wait … (the engine's message, 3.230.0)
  s3://state/.pulumi/locks/p/dev/a.json: created by runner@{} (pid 999999) at 2026-11-27T10:00:00Z
"""
TOKENS = {
    "/repos/team/research/actions/runs/7/attempts/2": "Authorization",
    "/projects/3/jobs/5": "PRIVATE-TOKEN",
}


def locked(host: str, tag: str = "") -> tuple[Session, list[str], StringIO]:
    """Return a session on a stack that a host has locked, what its engine is asked, and what is printed."""
    asked, output = list[str](), StringIO()
    engine = SimpleNamespace(
        locks=lambda _: locks_in(ENGINE.format(host)) if host else [],
        tag=lambda _, name: {"trainyard:run": tag}[name],
        release=lambda _: asked.append("release"),
        recover=lambda _: asked.append("recover"),
    )
    console = Console(file=output, width=200)
    fake = SimpleNamespace(stack_name="dev", project_engine=engine, console=console)
    return cast(Session, cast(Any, fake)), asked, output


@pytest.fixture
def status(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The status of the run on fakes of GitHub and GitLab, which a test may change."""
    found = ["in_progress"]

    class Service(QuietHandler):
        def do_GET(self) -> None:
            is_allowed = self.headers[TOKENS[self.path]].endswith("token")
            self.respond(200 if is_allowed else 401, {"status": found[0]})

    with serving(Service) as listening:
        for name in ("GITHUB_API_URL", "CI_API_V4_URL"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{listening.server_port}")
        of_job = "GITHUB_TOKEN=token UNLOCK_TOKEN=token CI_PROJECT_ID=3 CI_PROJECT_PATH=group/project"
        for word in of_job.split():
            monkeypatch.setenv(*word.split("="))
        yield found


@pytest.mark.parametrize(("run", "ended"), [(RUN, "completed"), (JOB, "canceled")])
def test_a_lock_is_released_when_the_service_says_that_its_run_is_over(
    run: str, ended: str, status: list[str]
) -> None:
    session, asked, output = locked("ci-7", f"{run} ci-7")
    with pytest.raises(TrainyardError, match=f"process 999999 of runner on ci-7 since 2026-11-27.*{run}"):
        release_lock(session, is_over=False)
    assert asked == []
    status[0] = ended
    release_lock(session, is_over=False)
    assert (asked, f"on ci-7 since 2026-11-27T10:00:00Z, {run}" in output.getvalue()) == (["release"], True)


def test_without_an_answer_of_the_service_the_lock_stays(
    status: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status[0] = "completed"
    session, asked, _ = locked("laptop", f"{RUN} ci-7")
    with pytest.raises(TrainyardError, match=r"on laptop since [^,]*\n"):
        release_lock(session, is_over=False)
    for variable in ("GITHUB_TOKEN", "GITHUB_API_URL"):
        monkeypatch.setenv(variable, "http://127.0.0.1:1")
        with pytest.raises(TrainyardError, match="--over"):
            release_lock(locked("ci-7", f"{RUN} ci-7")[0], is_over=False)
    release_lock(session, is_over=True)
    assert asked == ["release"]


def test_a_process_of_this_host_that_has_ended_needs_no_service() -> None:
    (dead, of_dead, _), (free, of_free, _) = locked(socket.gethostname()), locked("")
    with pytest.raises(TrainyardError, match="run the job `unlock`"):
        check_unlocked(dead)
    check_unlocked(free)
    for session in (dead, free):
        release_lock(session, is_over=False)
    assert (of_dead, of_free) == (["release"], ["recover"])
