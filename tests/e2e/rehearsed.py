"""`trainyard stack rehearse`, run as a user runs it, without credentials."""

import json
import os
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

from infra.common.artifacts import ROOT
from rehearsal.leaks import Leak, leaks_in
from tests.processes import capture

PLUGIN = """\
#!/bin/sh
# The engine starts this script; the provider is in the test's process.
echo {port}
exec sleep infinity
"""
CACHES = {"UV_CACHE_DIR": ".cache/uv", "PIP_CACHE_DIR": ".cache/pip", "TRAINYARD_CACHE": ".cache/trainyard"}
CACHES |= {"GOMODCACHE": "go/pkg/mod"}
"""Variable → where a user has this cache without it."""
_SECRET = ("AWS_", "GOOGLE_", "KUBECONFIG")


def plain_environment(folder: Path) -> dict[str, str]:
    """Return the environment without credentials, and with a separate state."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(_SECRET)}
    return {**inherited, "TRAINYARD_STATE": str(folder / "state")}


def caches(*names: str) -> dict[str, str]:
    """Return the variables by which a process with another home has this host's caches."""
    return {name: os.environ.get(name, str(Path.home() / CACHES[name])) for name in names}


def copy_repository(folder: Path, *but: str) -> None:
    """Copy the files as in a new clone: no environment, no links to artifacts; and none of these folders."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"]
    listed = capture([*command, ".", *(f":!{each}" for each in but)], cwd=ROOT, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        source, target = ROOT / name, folder / name
        if source.is_file() and not source.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def rehearse(folder: Path, stack: str, *arguments: str, stacks: Path | None = None, code: int = 0) -> Any:
    """Run the command; return its report, or its error output if `code` is not 0."""
    own = {"TRAINYARD_STACKS": str(stacks)} if stacks else {}
    ended = capture(
        [ROOT / ".venv/bin/trainyard", "stack", "rehearse", "-s", stack, "-o", "json", *arguments],
        env={**plain_environment(folder), **own},
        timeout=1500,
    )
    assert ended.returncode == code, ended.stderr[-4000:]
    assert leaks_reported(ended) == []
    return json.loads(ended.stdout) if code == 0 else ended.stderr


def leaks_reported(ended: subprocess.CompletedProcess[str]) -> list[Leak]:
    """Return the secrets in a command's output; a rehearsal searches its files before it deletes them."""
    return leaks_in(dict.fromkeys((ended.stdout + ended.stderr).splitlines(), "output"))


def install_plugin(home: Path, package: str, port: int) -> None:
    """Install the provider at the path of `pulumi plugin install`."""
    name = f"pulumi-resource-{package}"
    folder = home / ".pulumi" / "plugins" / f"resource-{package}-v{version(f'pulumi-{package}')}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(PLUGIN.format(port=port))
    (folder / name).chmod(0o755)
