"""`trainyard team login FILE`: adds a context to the user's kubeconfig from a file of `team access`, and
prints who is signed in. A file is refused if its sign-in program, its variables or its server address are not
allowed.
"""

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, Field, ValidationError
from pydantic_core import ErrorDetails

from infra.errors import InputError, Problem
from infra.targets.kubeconfig import read_kubeconfig
from trainyard.stack.session import Session

FORMAT = "trainyard-access/1"
PROGRAMS = frozenset({"aws", "gke-gcloud-auth-plugin", "kubelogin", "kubectl", "trainyard"})
"""Sign-in programs that an access file may name without a question to the user; they do nothing else."""
VARIABLE = re.compile(r"(AWS|AZURE|AAD|CLOUDSDK|GOOGLE|USE_GKE)_[A-Z_]+")
"""Variables that an access file may set for a sign-in program: none of them changes which code runs."""
Section = dict[str, Any]
_KEYS = {"format", "name", "namespace", "groups", "cluster", "user"}


class _Variable(BaseModel):
    name: str
    value: str


class _Plugin(BaseModel):
    command: str = ""
    args: list[str] | None = None
    env: list[_Variable] | None = None


class _User(BaseModel, extra="forbid"):  # a tokenFile would be sent to the file's server
    exec: _Plugin = _Plugin()


class _Cluster(BaseModel):
    server: str = ""


class _AccessFile(BaseModel):
    """The parts of an access file that are read here; the rest is for Kubernetes' clients."""

    name: str = Field(min_length=1)
    namespace: str = Field(min_length=1)
    cluster: _Cluster
    user: _User


def log_in(session: Session, file: Path, *, allowed: str = "") -> None:
    """Write the context, ask the cluster for the user's identity, and print the next step.

    `allowed` names a program that the file may run to sign in, besides those that are known.

    Raises:
        InputError: the file is wrong, or the kubeconfig has something else by that name; all problems.
        TrainyardError: the cluster cannot be reached, or does not know the user.
    """
    access = read(file, allowed)
    file = kubeconfig_file()
    write(file, merged(read_kubeconfig(file), access, file))
    name = access["name"]
    session.console.print(f"context {name} in {file}, namespace {access['namespace']}", highlight=False)
    reached = Session(session.stack_name, session.paths, session.console, context=name)
    session.console.print(f"signed in as {_whoami(reached)}", highlight=False)
    session.console.print(f"export TRAINYARD_CONTEXT={name}", highlight=False)


def read(file: Path, allowed: str = "") -> Section:
    """Return the file's contents.

    Raises:
        InputError: the file is wrong; the message has all problems.
    """
    fix = "ask your platform team for it: trainyard team access --team TEAM"
    try:
        found = yaml.safe_load(file.read_text())
    except (OSError, yaml.YAMLError, ValueError) as error:
        raise InputError([Problem(str(file), str(error), "a file of `trainyard team access`", fix)]) from None
    if not isinstance(found, dict) or found.get("format") != FORMAT or set(found) != _KEYS:
        got = found.get("format", "no format") if isinstance(found, dict) else type(found).__name__
        raise InputError([Problem(str(file), str(got), f"format {FORMAT}, keys {sorted(_KEYS)}", fix)])
    try:
        access = _AccessFile.model_validate(found)
    except ValidationError as error:
        raise InputError([_misshapen(file, detail, fix) for detail in error.errors()]) from None
    if problems := [*_problems(file, access, allowed, fix)]:
        raise InputError(problems)
    return found


def _misshapen(file: Path, detail: ErrorDetails, fix: str) -> Problem:
    """Report a value of another type than in an exported file, without the value, which may be secret."""
    path = ".".join(str(part) for part in detail["loc"])
    got = "nothing" if detail["input"] is None else type(detail["input"]).__name__
    return Problem(f"{file}:{path}", got, detail["msg"], fix)


def _problems(file: Path, access: _AccessFile, allowed: str, fix: str) -> Iterator[Problem]:
    plugin = access.user.exec
    if plugin.command not in PROGRAMS | {allowed or "trainyard"}:
        ask = f"check what the program does; if you trust it: --allow {plugin.command}"
        yield Problem(f"{file}:user.exec.command", plugin.command, f"one of {sorted(PROGRAMS)}", ask)
    for variable in plugin.env or ():
        if not VARIABLE.fullmatch(variable.name):
            yield Problem(f"{file}:user.exec.env", variable.name, "variables of a cloud's sign-in", fix)
    if not access.cluster.server.startswith("https://"):
        yield Problem(f"{file}:cluster.server", access.cluster.server, "an https URL", fix)


def kubeconfig_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the file that kubectl writes to: the first of `$KUBECONFIG`, else `~/.kube/config`."""
    first = next(filter(None, environ.get("KUBECONFIG", "").split(":")), "")
    return Path(first) if first else Path(environ.get("HOME", "/")) / ".kube" / "config"


def merged(config: Section, access: Section, file: Path) -> Section:
    """Return the kubeconfig with the context; the rest of it remains unchanged.

    Raises:
        InputError: the kubeconfig has something else by that name.
    """
    name = access["name"]
    context = {"cluster": name, "user": name, "namespace": access["namespace"]}
    entries = {"clusters": ("cluster", access["cluster"]), "users": ("user", access["user"])}
    result: Section = {"apiVersion": "v1", "kind": "Config", **config}
    for section, (key, value) in {**entries, "contexts": ("context", context)}.items():
        others = [each for each in result.get(section) or () if each["name"] != name]
        [*before] = [each for each in result.get(section) or () if each["name"] == name]
        server = (before[0].get(key) or {}).get("server") if before else None
        if section == "clusters" and before and server != value["server"]:
            got = f"{name} is {server}"
            fix = f"remove it: kubectl config delete-cluster {name}"
            raise InputError([Problem(str(file), got, f"no cluster {name}, or {value['server']}", fix)])
        result[section] = [*others, {"name": name, key: value}]
    result.setdefault("current-context", name)
    return result


def write(file: Path, config: Section) -> None:
    """Replace the kubeconfig atomically, readable by its owner only; a link to it remains a link."""
    file = file.resolve()
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.NamedTemporaryFile("w", dir=file.parent, prefix=".kubeconfig-", delete=False) as staged:
        staged.write(yaml.safe_dump(config, sort_keys=False))
    Path(staged.name).replace(file)


def _whoami(session: Session) -> str:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    user = session.api.create(path, body)["status"]["userInfo"]
    groups = [group for group in user.get("groups") or () if not group.startswith("system:")]
    return f"{user['username']}, of {', '.join(groups) or 'no group'}"
