"""Prepares the commit of a release: `make release VERSION=X.Y.Z`, once before each tag.

It writes the version to all files (`tests/versions.py`), and stores the state that the program creates from a
small stack, with the real engine and fakes. `test_release.py` tests what later code does to this state.
`make release` (release.py) then writes what is published, from that commit.
"""

import gzip
import json
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from infra.common.artifacts import ROOT
from tests import versions
from tests.e2e.engines import engine_for

STACK = "aws-dev"
STATE = ROOT / "tests/golden/release" / f"{STACK}.json.gz"
STACK_FILE = STATE.with_name(f"Pulumi.{STACK}.yaml")
"""The stack file of the stored state."""
PROJECT = "trainyard"


def own_program(folder: Path, stack_file: str = "") -> Path:
    """Write a project of our program with this stack file's text, or the release's."""
    project = {**yaml.safe_load((ROOT / "Pulumi.yaml").read_text()), "name": PROJECT}
    project["main"] = str(ROOT / "infra")
    project["runtime"]["options"]["virtualenv"] = str(ROOT / ".venv")
    (folder / "stacks").mkdir(parents=True)
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump(project))
    (folder / "stacks/Pulumi.dev.yaml").write_text(stack_file or STACK_FILE.read_text())
    return folder


def make(folder: Path) -> dict[str, Any]:
    """Bring the stack up on fakes and return the engine's state of it."""
    with engine_for(own_program(folder / "project"), folder, own=True) as engine:
        engine.pulumi("stack", "init", "dev")
        up = engine.pulumi("up", "-s", "dev", "--yes", "--skip-preview", "--suppress-progress")
        if up.returncode:
            sys.exit((up.stdout + up.stderr)[-4000:])
        exported = engine.pulumi("stack", "export", "-s", "dev", "--show-secrets")
        state: dict[str, Any] = json.loads(exported.stdout)
    deployment = state["deployment"]
    deployment.pop("secrets_providers")  # of this run's passphrase, which imports do not have
    for resource in deployment["resources"]:
        for of_this_machine in ("sourcePosition", "stackTrace"):
            resource.pop(of_this_machine, None)
    return state


def refused(version: str) -> str:
    """Return why this clone cannot become that release; empty if it can."""
    if _git("status", "--porcelain"):
        return "the clone has changes: commit them first"
    if _git("tag", "--list", f"v{version}"):
        return f"the tag v{version} exists: name another version"
    return versions.problem(version)


def _git(*words: str) -> str:
    command = ["git", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def write_state() -> None:
    """Write the state and its stack file."""
    STATE.parent.mkdir(parents=True, exist_ok=True)
    STACK_FILE.write_text((ROOT / "stacks" / f"Pulumi.{STACK}.yaml").read_text())
    with tempfile.TemporaryDirectory() as name:
        state = make(Path(name))
    text = json.dumps(state, separators=(",", ":"), sort_keys=True).replace(str(ROOT), "/trainyard")
    STATE.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    made = len(state["deployment"]["resources"])
    sys.stdout.write(f"{STATE.relative_to(ROOT)}: {made} resources, {STATE.stat().st_size // 1024} KiB\n")


def main(version: str) -> None:
    """Write the files of the release's commit, and print the next step."""
    if problem := refused(version):
        sys.exit(f"VERSION: {problem}")
    changed = versions.write(version, date.today())
    sys.stdout.write(f"{version}: stated in {len(changed)} files\n")
    write_state()
    sys.stdout.write(
        "next: read `git diff`; make test && make soak; then\n"
        f"  git commit -am 'Release {version}' && make release && git tag v{version}\n"
        f"  git push origin HEAD v{version}\n"
    )


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
