"""`trainyard team access`: writes a file without secrets by which team members reach a cluster; also issues
members' certificates on the embedded cluster.

The file has the API server's address, its CA certificate, and the program that signs users in. On the
embedded cluster that program is `trainyard credential --member`, which signs a certificate with the cluster's
own key. Only root of this host can read the key, and so can sign in as any user.
"""

import shlex
from pathlib import Path
from typing import Any

import yaml

from infra.common import names
from infra.errors import InputError, Problem
from infra.targets.kubeconfig import EXEC_API, Entry
from trainyard.stack.access import kubeconfig_for
from trainyard.stack.login import FORMAT
from trainyard.stack.session import Session

_OWN = frozenset({"AWS_PROFILE"})
"""Variables of a sign-in that belong to the user who ran `up`, and are not exported."""


def export_access(session: Session, team: str, sign_in: str, file: Path | None) -> Path:
    """Write the file, and return where it is.

    Raises:
        InputError: the stack has no such team, or no sign-in is configured for its members.
        TrainyardError: the stack is not up.
    """
    known = {each.name: each for each in session.stack.teams}
    if team not in known:
        raise InputError([Problem("--team", team, f"one of {', '.join(known)}", "name one of these")])
    if not known[team].members:
        fix = f"name a group of your identity provider: teams.{team}.members, and bring the stack up"
        raise InputError([Problem(f"team {team}", "no members", "a team with members", fix)])
    kubeconfig = yaml.safe_load(kubeconfig_for(session))
    cluster = kubeconfig["clusters"][0]["cluster"]
    content = {
        "format": FORMAT,
        "name": f"{session.stack.name}-{team}",
        "namespace": names.team_namespace(team),
        "groups": list(known[team].members),
        "cluster": _reached(cluster),
        "user": {"exec": _sign_in(session, kubeconfig["users"][0]["user"], team, sign_in)},
    }
    file = file or Path(f"{content['name']}.access.yaml")
    file.write_text(
        f"# How {team} reaches {session.stack.name}: trainyard team login {file.name}\n" + _text(content)
    )
    return file


def _text(content: dict[str, Any]) -> str:
    return yaml.safe_dump(content, sort_keys=False)


def _reached(cluster: Entry) -> Entry:
    """Address and authority; a proxy may have a password, and is each user's own."""
    copied = ("server", "certificate-authority-data", "tls-server-name")
    return {key: cluster[key] for key in copied if key in cluster}


def _sign_in(session: Session, user: Entry, team: str, sign_in: str) -> Entry:
    """Return the program that signs a user in, without settings of the user who ran `up`."""
    if sign_in:
        try:
            command, *words = shlex.split(sign_in)
        except ValueError as error:
            fix = "quote its arguments as a shell reads them"
            raise InputError(
                [Problem("--sign-in", f"{sign_in!r}: {error}", "a command with its arguments", fix)]
            ) from None
        return _plugin(command, words)
    if session.is_on_host:
        return _plugin("trainyard", ["credential", "--member", team, "--stack", session.stack_name])
    plugin = user.get("exec")
    if not plugin or plugin["command"] == "trainyard":
        got = "the stack's kubeconfig contains your credential"
        fix = "name the members' command: --sign-in 'kubectl oidc-login get-token --oidc-issuer-url=… …'"
        raise InputError([Problem("--sign-in", got, "a program that prints credentials", fix)])
    env = [each for each in plugin.get("env") or () if each["name"] not in _OWN]
    return {**plugin, "env": env} if env else {key: part for key, part in plugin.items() if key != "env"}


def _plugin(command: str, words: list[str]) -> Entry:
    return {"apiVersion": EXEC_API, "command": command, "args": words, "interactiveMode": "IfAvailable"}


def member_credential(session: Session, team: str) -> dict[str, Any]:
    """Return a certificate of the embedded cluster for a member of a team, as an exec plugin answers.

    Raises:
        TrainyardError: the cluster is not this host's, or its key cannot be read.
    """
    from local.cluster.pki import Authority, CertificateSubject

    groups = next(each.members for each in session.stack.teams if each.name == team)
    pki = session.kubeconfig.parent / "pki"
    pair = Authority(pki, "ca").issue(
        f"member-{team}", CertificateSubject(f"member-of-{team}", tuple(groups))
    )
    status = {"clientCertificateData": pair.certificate.read_text(), "clientKeyData": pair.key.read_text()}
    return {"apiVersion": EXEC_API, "kind": "ExecCredential", "status": status}
