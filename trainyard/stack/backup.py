"""`trainyard stack backup` and `restore`: what another host needs to go on with a stack, in one file."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from infra.errors import InputError, Problem
from infra.stackfile.source import read
from local.cluster.files import write
from trainyard.stack.session import Session, planned_by_one


@dataclass(frozen=True)
class Backup:
    """The content of the file, without credentials of a cloud or a cluster."""

    stack: str
    stack_file: str
    state: Mapping[str, Any]
    """As `pulumi stack export` prints it: its secrets are encrypted."""
    passphrase: str
    """Of the secrets; empty where a cloud's key encrypts them, or the user's own passphrase."""
    team_files: Mapping[str, str]
    """Path beside the stack file → text of each file of `teams_from`."""

    @classmethod
    def read(cls, file: Path) -> "Backup":
        """Read a file that `backup` wrote. Raises InputError."""
        try:
            return cls(**json.loads(file.read_text()))
        except (OSError, ValueError, TypeError) as error:
            allowed = "a file that `trainyard stack backup` wrote"
            raise InputError([Problem(str(file), str(error), allowed, "name that file")]) from None

    @classmethod
    def write(cls, session: Session, file: Path) -> "Backup":
        """Write the stack's present state."""
        state = json.loads(session.engine.export(session.stack_name))
        provider = (state["deployment"].get("secrets_providers") or {}).get("type")
        ours = session.engine.passphrase if provider == "passphrase" else None
        content = session.stack_file.read_text()
        parts = [Path(each.label) for each in read(session.stack_file)[1].parts.values()]
        teams = {str(each.relative_to(session.stack_file.parent)): each.read_text() for each in parts}
        backup = cls(session.stack_name, content, state, ours.read_text() if ours else "", teams)
        write(file, json.dumps(asdict(backup)))
        return backup

    def files(self, session: Session) -> dict[Path, str]:
        """Return path → text of the stack file and of teams' files, in the session's folder."""
        texts = {session.stack_file.name: self.stack_file, **self.team_files}
        return {session.stack_file.parent / name: text for name, text in texts.items()}

    def write_files(self, session: Session) -> None:
        """Write those that are not there."""
        for file, text in self.files(session).items():
            file.parent.mkdir(parents=True, exist_ok=True)
            if not file.exists():
                file.write_text(text)

    def __str__(self) -> str:
        return f"{len(self.state['deployment'].get('resources') or ())} resources"


def back_up(session: Session, file: Path) -> None:
    """Write the backup of a stack. Raises InputError for the embedded cluster, and for an empty state."""
    name = session.stack_name
    if session.is_embedded:
        got = "the embedded cluster, which is on this host with its state"
        fix = f"copy what jobs wrote: {session.paths.cluster_data(session.stack.name)}"
        raise InputError([Problem(f"stack {name}", got, "a stack of a cloud, or on premises", fix)])
    with planned_by_one(session.paths, session.stack.name):
        if session.engine.is_empty(name):
            got, fix = "no resources in its state", f"bring it up first: trainyard up -s {name}"
            raise InputError([Problem(f"stack {name}", got, "a stack that is up", fix)])
        backup = Backup.write(session, file)
    key = f"{'with' if backup.passphrase else 'without'} the key of their secrets: keep it as you keep a key"
    session.console.print(f"{file}: {backup} and {session.stack_file.name}, {key}", soft_wrap=True)


def warn_of_host(session: Session) -> None:
    """Say before the first `up` that no other host has the state."""
    if not session.is_embedded and session.engine.is_on_host:
        where, word = session.paths.engine, f"trainyard stack backup FILE -s {session.stack_name}"
        text = (
            f"only this host has the state ({where}): after `up`, take it to another: {word} (docs/state.md)"
        )
        session.console.print(f"[yellow]warning[/] {text}", highlight=False, soft_wrap=True)


def take_over(backup: Backup, session: Session) -> None:
    """Restore passphrase and state where none of them is.

    Raises:
        InputError: this host has another passphrase in use, or the stack has resources.
    """
    name, fix = session.stack_name, "restore elsewhere: TRAINYARD_STATE=FOLDER trainyard stack restore FILE"
    with planned_by_one(session.paths, session.stack.name):
        file = session.engine.passphrase
        if backup.passphrase and file and file.read_text() != backup.passphrase:
            copies = sorted((session.paths.engine / "config").glob("Pulumi.*.yaml"))
            if users := [each.name for each in copies if "encryptionsalt:" in each.read_text()]:
                got = f"another one, of this host's stacks ({', '.join(users)})"
                raise InputError([Problem(str(file), got, "the backup's passphrase, or none in use", fix)])
            write(file, backup.passphrase)
        if not session.engine.is_empty(name):
            got = f"{len(session.engine.resources(name))} resources in its state"
            raise InputError([Problem(f"stack {name}", got, "a stack without a state", fix)])
        session.engine.restore(name, json.dumps(backup.state))
    differs = any(
        not file.exists() or file.read_text() != text for file, text in backup.files(session).items()
    )
    note = " (yours, which differs from the backup's)" if differs else ""
    where = f"{backup} are in the state, as {session.stack_file}{note} describes them"
    see = f"nothing was changed in the cloud; see that nothing would be: trainyard preview -s {name}"
    session.console.print(f"{where}\n{see}", highlight=False, soft_wrap=True)
