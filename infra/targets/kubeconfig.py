"""Extracts one context of the user's kubeconfig: with its credentials for this process, or without them for
the stack. `trainyard credential` supplies the omitted ones.

A stack holds a reference only: the cluster's address, its CA certificate, and the context's name. A client
runs `trainyard credential NAME` (an exec plugin of Kubernetes' clients), which reads the user's kubeconfig at
that moment. So the engine's state holds no token and no key, and each user signs in as themselves.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from infra.clients.kubernetes.access import PluginError, ask_plugin, authority, content_of, reached
from infra.common.kubeconfig import kubeconfig_of
from infra.errors import InputError, Problem

EXEC_API = "client.authentication.k8s.io/v1"
COMMAND = ("trainyard", "credential")
_IMPERSONATED = ("as", "as-uid", "as-groups", "as-user-extra")
"""Fields of a user that impersonate another identity; the API server authorizes each use."""
_UNSUPPORTED = ("username", "password", "auth-provider")
"""Fields of a user that Kubernetes removed: the first two in 1.19, the third in 1.26."""
_FILES = {"cluster": ("certificate-authority",), "user": ("client-certificate", "client-key", "tokenFile")}
_PARTS = {"contexts": "context", "clusters": "cluster", "users": "user"}
"""Section of a kubeconfig → the part of each of its entries that is not the name."""
PATH = "target.cluster.context"
Entry = dict[str, Any]


def read_kubeconfig(file: Path) -> Entry:
    """Return what a kubeconfig has; empty where there is no file.

    Raises InputError where the file cannot be read, or is no kubeconfig. No value of it is shown.
    """
    try:
        content: Any = yaml.load(file.read_text(), Loader=yaml.CSafeLoader) if file.is_file() else None
        content = {} if content is None else content
        wrong = _first_wrong(content)
    except yaml.MarkedYAMLError as error:
        wrong = f"no YAML, at line {error.problem_mark.line + 1}" if error.problem_mark else "no YAML"
    except (OSError, yaml.YAMLError, ValueError) as error:
        wrong = str(error)
    if wrong:
        fix = f"correct it until `kubectl config view --kubeconfig {file}` prints it"
        raise InputError([Problem(str(file), wrong, "a kubeconfig", fix)])
    return dict(content)


def _first_wrong(content: Any) -> str:  # noqa: ANN401 -- anything that YAML can be
    """Return the path of the first value of a wrong type; empty where there is none."""
    if not isinstance(content, dict):
        return "not a mapping"
    for section, part in _PARTS.items():
        entries = content.get(section) or []
        if not isinstance(entries, list):
            return f"{section}: not a list"
        for number, entry in enumerate(entries):
            where = f"{section}[{number}]"
            if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
                return f"{where}: no name"
            if not isinstance(entry.get(part) or {}, dict):
                return f"{where}.{part}: not a mapping"
            if not isinstance((entry.get(part) or {}).get("exec") or {}, dict):
                return f"{where}.{part}.exec: not a mapping"
    return ""


def kubeconfig_without_credentials(name: str, environ: Mapping[str, str] = os.environ, fix: str = "") -> str:
    """Return a kubeconfig that reaches the context's cluster, and holds no credential.

    Raises InputError where no file has the context, or its user signs in by what Kubernetes has no more.
    """
    context, cluster, user = _entries(name, environ, fix)
    if urlsplit(cluster.get("proxy-url", "")).password:
        got, fix = f"{name!r}: a proxy-url with credentials", "set the proxy by HTTPS_PROXY"
        raise InputError([Problem(PATH, got, "a proxy-url without", fix)])
    acts_as = {key: user[key] for key in _IMPERSONATED if key in user}
    by = {"exec": _plugin(name)} if _signs_in(name, user) else {}
    namespace = {key: context[key] for key in ("namespace",) if key in context}
    config = kubeconfig_of(name, _read(reached, cluster), {**by, **acts_as}, namespace)
    return yaml.safe_dump(config, sort_keys=True)


def credential(name: str, environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return the credential of the context's user, as an exec plugin of Kubernetes' clients answers.

    Raises InputError where no file has the context, or its user's own plugin fails.
    """
    _, cluster, user = _entries(name, environ)
    _signs_in(name, user)
    status: dict[str, Any] = {}
    if "exec" in user:
        status |= _ask(name, user["exec"], cluster, environ)
    if "tokenFile" in user:
        status["token"] = _read(lambda file: Path(file).read_text().strip(), user["tokenFile"])
    elif "token" in user:
        status["token"] = user["token"]
    if key := _read(content_of, user, "client-key"):
        status["clientKeyData"] = key.decode()
        status["clientCertificateData"] = (_read(content_of, user, "client-certificate") or b"").decode()
    return {"apiVersion": EXEC_API, "kind": "ExecCredential", "status": status}


def kubeconfig_with_credentials(
    name: str, path: str = PATH, environ: Mapping[str, str] = os.environ, fix: str = ""
) -> str:
    """Return a kubeconfig of one context with its user's credentials, for use in this process only.

    `path` is where the user wrote the name. Raises InputError where no file has the context.
    """
    context, cluster, user = _entries(name, environ, fix, path)
    config = kubeconfig_of(name, {**cluster, **_read(authority, cluster)}, user, context)
    return yaml.dump(config, Dumper=yaml.CSafeDumper, sort_keys=True)


def namespace_of(name: str, path: str = "--context", environ: Mapping[str, str] = os.environ) -> str:
    """Return the namespace that a context names; empty where it names none.

    `path` is where the user wrote the name. Raises InputError where no file has the context.
    """
    context, _, _ = _entries(name, environ, path=path)
    return str(context.get("namespace", ""))


def _plugin(name: str) -> Entry:
    command, *words = COMMAND
    return {
        "apiVersion": EXEC_API,
        "command": command,
        "args": [*words, name],
        "installHint": "Trainyard's command line, in the environment that made the cluster's platform",
        "interactiveMode": "IfAvailable",
    }


def _signs_in(name: str, user: Entry) -> bool:
    """Whether the user has a credential at all. Raises InputError for one that clients take no more."""
    if found := [key for key in _UNSUPPORTED if key in user]:
        allowed = "a token, a client certificate, or an exec plugin"
        fix = "give the context's user another credential: Kubernetes clients no longer accept this one"
        raise InputError([Problem(PATH, f"{name!r}: {', '.join(found)}", allowed, fix)])
    return bool(user.keys() - {*_IMPERSONATED})


def _ask(name: str, plugin: Entry, cluster: Entry, environ: Mapping[str, str]) -> dict[str, Any]:
    """Run the user's own plugin, as Kubernetes' clients do."""
    try:
        return dict(_read(lambda: ask_plugin(plugin, cluster, environ)))
    except PluginError as error:
        # Its arguments and its output may be secret, so neither is shown.
        fix = f"sign in again, and try `kubectl --context {name} get nodes`"
        raise InputError(
            [Problem(PATH, f"{name!r}: {error}", "a plugin that signs the user in", fix)]
        ) from None


def _entries(
    name: str, environ: Mapping[str, str], fix: str = "", path: str = PATH
) -> tuple[Entry, Entry, Entry]:
    """Return the context, its cluster and its user.

    Files are those of `$KUBECONFIG`, else `~/.kube/config`; the first that has a name wins, as in kubectl.
    """
    default = Path(environ.get("HOME", "/")) / ".kube" / "config"
    paths = [Path(path) for path in environ.get("KUBECONFIG", "").split(":") if path] or [default]
    merged = _merge(paths)
    found = merged["contexts"].get(name)
    if found is None:
        known = ", ".join(sorted(merged["contexts"])) or "there is none"
        fix = fix or "name one of these, or set KUBECONFIG to the file that has it"
        raise InputError([Problem(path, repr(name) if name else "none", f"a context: {known}", fix)])
    context: Entry = found.get("context") or {}
    named = context.get("cluster", "")
    cluster, user = merged["clusters"].get(named), merged["users"].get(context.get("user", ""))
    if cluster is None:
        allowed, fix = "a context whose cluster is in the kubeconfig", "look at `kubectl config view`"
        raise InputError([Problem(path, f"{name!r}: no cluster {named}", allowed, fix)])
    reached: Entry = cluster.get("cluster") or {}
    if not isinstance(reached.get("server"), str):
        allowed, fix = "a cluster with the URL of its server", "look at `kubectl config view`"
        raise InputError([Problem(path, f"{name!r}: no server in cluster {named}", allowed, fix)])
    return context, reached, (user or {}).get("user") or {}


def _merge(paths: list[Path]) -> dict[str, dict[str, Entry]]:
    merged: dict[str, dict[str, Entry]] = {section: {} for section in _PARTS}
    for path in paths:
        content = read_kubeconfig(path)
        for section, entries in merged.items():
            for entry in content.get(section) or []:
                entries.setdefault(entry["name"], _absolute(entry, path.parent))
    return merged


def _absolute(entry: Entry, folder: Path) -> Entry:
    """Make references to files independent of where the kubeconfig lies."""
    for part, keys in _FILES.items():
        held = entry.get(part) or {}
        for key in keys:
            if held.get(key):
                held[key] = str(folder / held[key])
    plugin = (entry.get("user") or {}).get("exec") or {}
    if "/" in (plugin.get("command") or ""):  # else the client looks for it on PATH
        plugin["command"] = str(folder / plugin["command"])
    return entry


def _read(read: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401 -- what it reads
    """Return what reads a kubeconfig's files. Raises InputError where there is no such file."""
    try:
        return read(*arguments)
    except OSError as error:
        fix = "put the file there, or correct the kubeconfig"
        raise InputError([Problem(PATH, str(error), "a file that can be read", fix)]) from None
