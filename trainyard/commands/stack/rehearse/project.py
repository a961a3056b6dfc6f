"""Creates the isolated project folder of a rehearsal, and scans its files for secrets afterwards."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from engine.engine import without_encryption
from engine.paths import Paths
from infra.stackfile.source import document
from rehearsal.leaks import Leak, leaks_in, lines_of
from trainyard.stack.session import Session

LINKS = (".venv", ".trainyard")
"""Parts of the clone that the rehearsal's project folder links to."""
PROGRAM = "program"
MADE = "made"
"""Name of the folder, in the rehearsal's state, with the fakes' resources and the kubeconfig of their
cluster."""


@dataclass(frozen=True)
class RehearsalProject:
    """A project folder of the rehearsal's own: the clone's program, and a copy of the stack file."""

    session: Session
    """The rehearsed stack, with separate paths."""
    policies: Path

    @property
    def file(self) -> Path:
        return self.session.stack_file

    def rewrite(self, data: Mapping[str, Any]) -> None:
        """Write the copy of the stack file, as JSON: the YAML writer omits quotes that the engine needs."""
        self.file.write_text(json.dumps(data))

    def read(self) -> dict[str, Any]:
        return document(self.file)


def leaks_left(paths: Paths) -> list[Leak]:
    """Return the secrets that can be read in a rehearsal's own project and state.

    The clouds' data, the user's files and the passphrase file contain secrets by design.
    """
    passphrase = paths.engine / "passphrase"
    meant = {paths.state / MADE, passphrase}
    written = (file for folder in (paths.repository, paths.state) for file in folder.rglob("*"))
    left = (file for file in written if file.is_file() and not file.is_symlink())
    lines = lines_of(file for file in left if meant.isdisjoint((file, *file.parents)))
    return leaks_in(lines, {"the passphrase of the state": passphrase.read_text()})


@contextmanager
def open_project(session: Session) -> Iterator[RehearsalProject]:
    """Make the project folder, and remove it with all files of the rehearsal."""
    with tempfile.TemporaryDirectory(prefix="trainyard-rehearsal-") as name:
        folder = Path(name) / "project"
        stacks = folder / "stacks"
        stacks.mkdir(parents=True)
        for link in LINKS:
            (folder / link).symlink_to(session.paths.repository / link)
        # A folder, not a link: the engine runs in it, and policies look for stack files from there upwards.
        (folder / PROGRAM).mkdir()
        (folder / PROGRAM / "__main__.py").symlink_to(session.paths.repository / "infra" / "__main__.py")
        project = yaml.safe_load((session.paths.repository / "Pulumi.yaml").read_text())
        (folder / "Pulumi.yaml").write_text(yaml.safe_dump({**project, "main": PROGRAM}))
        for each in session.stack_file.parent.iterdir():
            if each.is_dir():  # of team files
                (stacks / each.name).symlink_to(each.absolute())
        (stacks / session.stack_file.name).write_text(without_encryption(session.stack_file.read_text()))
        paths = replace(session.paths, repository=folder, state=Path(name) / "state", stacks_folder=stacks)
        yield RehearsalProject(Session(session.stack_name, paths, session.console), session.paths.policies)
