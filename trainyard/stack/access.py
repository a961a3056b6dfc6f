"""Connects a command to a stack's Kubernetes API: finds the kubeconfig and builds a client.

The embedded cluster has a kubeconfig file. Any other cluster is reached by the context that the user names
(`--context`), else by the one that the stack file names, else by the stack's output `kubeconfig`.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from infra.clients import plain
from infra.errors import HostError, InputError, Problem, TrainyardError
from infra.targets.kubeconfig import kubeconfig_with_credentials

if TYPE_CHECKING:
    from trainyard.stack.session import Session

UNAUTHORIZED = 401


def connect(session: Session) -> client.ApiClient:
    """Return a client of the cluster's API server, which has answered.

    Raises:
        TrainyardError: there is no cluster, or it does not accept the user's credentials.
    """
    if session.is_on_host:
        return client_from(_embedded_kubeconfig(session), session.kubeconfig.parent / "client")
    # `--context` works without root or a stack.
    keys = session.paths.cache / "keys" if session.context else session.paths.engine / "tmp"
    api_client = client_from(_kubeconfig(session), keys)
    _probe(api_client, session)
    return api_client


def kubeconfig_for(session: Session) -> str:
    """Return the kubeconfig by which the stack's cluster is reached; it may hold a credential.

    Raises:
        TrainyardError: the stack is not up.
    """
    return _embedded_kubeconfig(session) if session.is_on_host else _kubeconfig(session)


def _embedded_kubeconfig(session: Session) -> str:
    if not session.kubeconfig.exists():
        fix = "start it with `trainyard up`, or name a context for another cluster (`--context NAME`)"
        raise TrainyardError(
            [Problem(f"stack {session.stack_name}", "no cluster runs", "a cluster that is up", fix)]
        )
    return session.kubeconfig.read_text()


def _kubeconfig(session: Session) -> str:
    if session.context:
        return kubeconfig_with_credentials(session.context, path="--context")
    from infra.stackfile.provider import ContextCluster

    declared = getattr(session.stack.provider, "cluster", None)
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


class TimedApiClient(client.ApiClient):
    """A client whose requests end without an answer; Kubernetes' own waits for one forever."""

    def call_api(self, *request: Any, _request_timeout: Any = None) -> Any:  # noqa: ANN401 -- the client's own
        call: Any = super().call_api
        waits = _request_timeout or (plain.CONNECT_SECONDS, plain.ANSWER_SECONDS)
        return call(*request, _request_timeout=waits)


def client_from(kubeconfig: str, keys: Path) -> client.ApiClient:
    """Return a client; certificates that must be files are in `keys`, which only the owner can read.

    Raises:
        HostError: the program that gets the credentials is not installed, or fails.
    """
    keys.mkdir(parents=True, exist_ok=True, mode=0o700)
    parsed = yaml.load(kubeconfig, Loader=yaml.CSafeLoader)
    configuration: Any = client.Configuration(retries=plain.RETRIES)
    configuration.socket_options = plain.socket_options()
    # The client writes keys to files, which remain after a kill: they belong in the private folder.
    load: Any = config.load_kube_config_from_dict
    load(parsed, client_configuration=configuration, temp_file_path=str(keys))
    for user in parsed.get("users") or ():
        if "exec" in user["user"] and not (configuration.api_key or configuration.cert_file):
            raise HostError([_no_credentials(user["user"]["exec"])])
    return TimedApiClient(configuration)


def _no_credentials(executed: dict[str, Any]) -> Problem:
    """Report a program that gives no credentials; the client only logs why, and continues without any."""
    command = " ".join([executed["command"], *(executed.get("args") or ())])
    missing = shutil.which(executed["command"]) is None
    got = f"{executed['command']}: not installed" if missing else f"no credentials from `{command}`"
    fix = "install it" if missing else "run it by hand to see its error, or sign in to the cloud"
    return Problem("kubeconfig: users.user.exec", got, "a program that prints credentials", fix)


def _probe(api_client: client.ApiClient, session: Session) -> None:
    """Ask for the version, which every authenticated user may do.

    Raises:
        TrainyardError: no answer, or none to this user.
    """
    address = api_client.configuration.host
    try:
        plain.read(api_client, "/version", seconds=plain.CONNECT_SECONDS)
    except ApiException as error:
        if error.status == UNAUTHORIZED:
            raise InputError([_signed_out(address)]) from error
    except HTTPError as error:
        raise TrainyardError([_unreachable(address, error, session)]) from error


def _signed_out(address: str) -> Problem:
    fix = "sign in again, or name the context of another user (`--context NAME`)"
    got = "401: the credentials have expired or are not accepted"
    return Problem(address, got, "a user of the cluster", fix)


def _unreachable(address: str, error: HTTPError, session: Session) -> Problem:
    return Problem(
        path=address,
        got=f"no answer: {error}",
        allowed="an API server that this host can reach",
        fix=f"{session.guide} says from which networks it is reachable",
    )
