"""One context of the user's kubeconfig, as a kubeconfig of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from infra.errors import InputError, Problem


def read_context(name: str, environ: Mapping[str, str] = os.environ, fix: str = "") -> str:
    """Return a kubeconfig with that context alone.

    Files are those of `$KUBECONFIG`, else `~/.kube/config`; the first that has a name wins, as in kubectl.
    Raises InputError where no file has the context.
    """
    default = Path(environ.get("HOME", "/")) / ".kube" / "config"
    paths = [Path(path) for path in environ.get("KUBECONFIG", "").split(":") if path] or [default]
    merged = _merge(paths)
    context = merged["contexts"].get(name)
    if context is None:
        known = ", ".join(sorted(merged["contexts"])) or "there is none"
        fix = fix or "name one of these, or set KUBECONFIG to the file that has it"
        raise InputError([Problem("provider.cluster.context", repr(name), f"a context: {known}", fix)])
    cluster, user = context["context"]["cluster"], context["context"]["user"]
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [context],
        "clusters": [merged["clusters"][cluster]],
        "users": [merged["users"][user]],
    }
    return yaml.safe_dump(config, sort_keys=True)


def _merge(paths: list[Path]) -> dict[str, dict[str, Any]]:
    merged: dict[str, dict[str, Any]] = {"contexts": {}, "clusters": {}, "users": {}}
    for path in paths:
        content = yaml.safe_load(path.read_text()) if path.is_file() else None
        for section, entries in merged.items():
            for entry in (content or {}).get(section) or []:
                entries.setdefault(entry["name"], _absolute(entry, path.parent))
    return merged


def _absolute(entry: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Make file references independent of where the kubeconfig lies."""
    for part in ("cluster", "user"):
        for key in ("certificate-authority", "client-certificate", "client-key"):
            if key in entry.get(part, {}):
                entry[part][key] = str(folder / entry[part][key])
    return entry
