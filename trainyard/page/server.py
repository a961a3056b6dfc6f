"""Answers the page's requests on this host's loopback: to whoever has the token, by GET, and nothing else."""

import re
import secrets
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse
from fastapi.staticfiles import StaticFiles
from fastapi.templating import Jinja2Templates

from infra.errors import TrainyardError
from trainyard.jobs.key import JobKey
from trainyard.page.charts import HEIGHT, WIDTH
from trainyard.page.views import read_job, read_overview
from trainyard.stack.session import Session

HERE = Path(__file__).parent
COOKIE = "trainyard-page"
MOST_JOBS = 100
"""Most rows of the list of jobs: those that run and wait come first."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_DIGEST = re.compile(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}")
Answer = Callable[[Request], Awaitable[Response]]


def page_of(session: Session, token: str, port: int) -> FastAPI:
    """Return the application of one user's session.

    Args:
        session: what is shown, and whose rights read it.
        token: secret of the address that the command prints.
        port: port of the loopback that it is served on; other names of the host are refused.
    """
    app = FastAPI(openapi_url=None)
    templates = Jinja2Templates(HERE / "templates")
    templates.env.globals.update(width=WIDTH, height=HEIGHT, most=MOST_JOBS)
    templates.env.filters["brief"] = lambda text: _DIGEST.sub(r"\1…", text)
    hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}

    @app.middleware("http")
    async def guard(request: Request, answer: Answer) -> Response:
        response = _refusal(request, token, hosts) or await answer(request)
        response.headers.update(HEADERS)
        return response

    def shown(request: Request, page: str, **values: Any) -> HTMLResponse:  # noqa: ANN401 -- a template's
        # htmx asks for the part that changes, a person for the whole page.
        whole = "part" if request.headers.get("hx-request") else "whole"
        return templates.TemplateResponse(request, f"{page}.html", {"layout": f"{whole}.html", **values})

    @app.get("/")
    def overview(request: Request) -> Response:
        return shown(request, "overview", seen=read_overview(session))

    @app.get("/jobs/{team}/{name}")
    def job(request: Request, team: str, name: str) -> Response:
        if (found := read_job(session, JobKey(team, name))) is None:
            return PlainTextResponse(f"{team} has no job {name}: trainyard jobs", HTTPStatus.NOT_FOUND)
        return shown(request, "job", seen=found, stack=session.context or session.stack_name)

    @app.exception_handler(TrainyardError)
    def problem(request: Request, error: Exception) -> Response:
        problems = error.problems if isinstance(error, TrainyardError) else ()
        return shown(request, "problem", problems=problems, stack=session.context or session.stack_name)

    app.mount("/static", StaticFiles(directory=HERE / "static"))
    return app


def _refusal(request: Request, token: str, hosts: set[str]) -> Response | None:
    """Return the answer to a request that is not the user's own; None where it is.

    Another page in the user's browser may send requests here: by a name that resolves to the loopback (the
    Host header shows it), or from its own origin, without the token's cookie.
    """
    origin = request.headers.get("origin", "")
    if request.headers.get("host") not in hosts or (origin and origin.removeprefix("http://") not in hosts):
        return PlainTextResponse("not an address of this page", HTTPStatus.MISDIRECTED_REQUEST)
    if request.method not in {"GET", "HEAD"}:
        return PlainTextResponse("the page only reads", HTTPStatus.METHOD_NOT_ALLOWED, {"Allow": "GET, HEAD"})
    if given := request.query_params.get("token"):
        if not secrets.compare_digest(given.encode(), token.encode()):
            return _no_token()
        answer = RedirectResponse(request.url.path)  # so that the token is not in the address bar
        answer.set_cookie(COOKIE, token, httponly=True, samesite="strict")
        return answer
    known = secrets.compare_digest(request.cookies.get(COOKIE, "").encode(), token.encode())
    return None if known else _no_token()


def _no_token() -> Response:
    return PlainTextResponse(
        "open the address that `trainyard ui` printed, with its token", HTTPStatus.FORBIDDEN
    )
