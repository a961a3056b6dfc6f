"""Connects a command to a stack's Kubernetes API: finds the kubeconfig, and asks.

The embedded cluster has a kubeconfig file. Any other cluster is reached by the context that the user names
(`--context`), else by the one that the stack file names, else by the stack's output `kubeconfig`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.clients.kubernetes import CONNECT_SECONDS, ApiError, ApiServer, NoAnswer, PluginError
from infra.errors import HostError, InputError, Problem, TrainyardError
from infra.targets.kubeconfig import kubeconfig_with_credentials

if TYPE_CHECKING:
    from trainyard.stack.session import Session

UNAUTHORIZED = 401
SIGN_IN = "for a team's jobs: `trainyard team login FILE`, or export TRAINYARD_CONTEXT=NAME"


def connect(session: Session) -> ApiServer:
    """Return the cluster's API server, which has answered.

    Raises:
        TrainyardError: there is no cluster, or it does not accept the user's credentials.
    """
    if session.is_on_host:
        return api_from(_embedded_kubeconfig(session), session.kubeconfig.parent / "client", proxied=False)
    # `--context` works without root or a stack.
    keys = session.paths.cache / "keys" if session.context else session.paths.engine / "tmp"
    api = api_from(_kubeconfig(session), keys)
    _probe(api, session)
    return api


def connect_to(session: Session, plan: Iterable[Mapping[str, Any]]) -> ApiServer:
    """Connect to a cluster that exists: one in a cloud's account by the plan, which has its kubeconfig."""
    if getattr(session.stack.target, "existing_cluster", None) is None:
        return session.api
    claim = next(each["inputs"] for each in plan if each["type"].endswith(":ClusterClaim"))
    api = api_from(claim["kubeconfig"]["value"], session.paths.engine / "tmp")  # a secret
    _probe(api, session)
    return api


def kubeconfig_for(session: Session) -> str:
    """Return the kubeconfig by which the stack's cluster is reached; it may hold a credential.

    Raises:
        TrainyardError: the stack is not up.
    """
    return _embedded_kubeconfig(session) if session.is_on_host else _kubeconfig(session)


def _embedded_kubeconfig(session: Session) -> str:
    if os.geteuid() != 0:  # a member, who names no context, rather than the owner of this host's cluster
        fix = f"{SIGN_IN}; the embedded cluster of this host is root's"
        return kubeconfig_with_credentials("", path="--context", fix=fix)
    if not session.kubeconfig.exists():
        fix = "start it with `trainyard up`, or name a context for another cluster (`--context NAME`)"
        raise TrainyardError(
            [Problem(f"stack {session.stack_name}", "no cluster runs", "a cluster that is up", fix)]
        )
    return session.kubeconfig.read_text()


def _kubeconfig(session: Session) -> str:
    if session.context:
        return kubeconfig_with_credentials(session.context, path="--context")
    from infra.stackfile.target import ContextCluster

    declared = getattr(session.stack.target, "cluster", None)
    if isinstance(declared, ContextCluster):
        return kubeconfig_with_credentials(declared.context)
    return _kubeconfig_output(session)


def _kubeconfig_output(session: Session) -> str:
    """Read the stack's output `kubeconfig` from the state: of the stack file's project, or our program's."""
    session.toolchain.ensure("binary/pulumi")
    found = ""
    for engine in (session.project_engine, session.engine):
        if not found and engine.exists(session.stack_name):
            found = str(engine.outputs(session.stack_name, show_secrets=True).get("kubeconfig") or "")
    if not found:
        problem = Problem(
            path=f"stack {session.stack_name}",
            got=f"no output `kubeconfig` in the state at {session.engine.backend_url}",
            allowed="a stack that is up, in this backend",
            fix=f"bring it up (`trainyard up -s {session.stack_name}`), or name a context of your kubeconfig"
            " (`--context NAME`)",
        )
        raise TrainyardError([problem])
    return found


def api_from(kubeconfig: str, keys: Path, *, proxied: bool = True) -> ApiServer:
    """Return the API server of a kubeconfig; `keys` is a folder that only the owner can read.

    Raises:
        HostError: the program that gets the credentials is not installed, or fails.
        InputError: the kubeconfig is wrong.
    """
    keys.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        return ApiServer.of(kubeconfig, keys, proxied=proxied)
    except PluginError as error:
        fix = "install it, or run it by hand to see its error and sign in to the cloud"
        problem = Problem("kubeconfig: users.user.exec", str(error), "a program that prints credentials", fix)
        raise HostError([problem]) from None
    except (ValueError, KeyError, OSError) as error:
        fix = "correct it until `kubectl config view` prints it"
        raise InputError(
            [Problem("kubeconfig", str(error), "a context with its cluster and user", fix)]
        ) from None


def _probe(api: ApiServer, session: Session) -> None:
    """Ask for the version, which every authenticated user may do.

    Raises:
        TrainyardError: no answer, or none to this user.
    """
    try:
        api.read("/version", seconds=CONNECT_SECONDS)
    except ApiError as error:
        if error.status == UNAUTHORIZED:
            raise InputError([_signed_out(api.address)]) from error
    except NoAnswer as error:
        raise TrainyardError([_unreachable(api.address, error, session)]) from error


def _signed_out(address: str) -> Problem:
    fix = "sign in again, or name the context of another user (`--context NAME`)"
    got = "401: the credentials have expired or are not accepted"
    return Problem(address, got, "a user of the cluster", fix)


def _unreachable(address: str, error: NoAnswer, session: Session) -> Problem:
    return Problem(
        path=address,
        got=f"no answer: {error.message}",
        allowed="an API server that this host can reach",
        fix=f"{session.guide} says from which networks it is reachable",
    )
