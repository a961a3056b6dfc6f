"""A backup has what another host needs, and is restored only where nothing is overwritten."""

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from engine.paths import Paths
from infra.errors import InputError
from trainyard.stack.backup import Backup, back_up, take_over, warn_of_host


def host(folder: Path, number: int = 0, provider: str = "passphrase", *, embedded: bool = False) -> Any:
    """Return a session on a host with its own passphrase, and a state of so many resources."""
    paths = Paths(cache=folder, state=folder / "state", stacks_folder=folder / "stacks")
    for each in (paths.engine / "config", paths.stacks):
        each.mkdir(parents=True)
    (paths.engine / "passphrase").write_text(f"of {folder.name}")
    paths.stack_file("mine").write_text(f"config: {{trainyard:stack: {{on: {folder.name}}}}}\n")
    resources = [{"urn": f"urn:{each}"} for each in range(number)]
    deployment = {"resources": resources, "secrets_providers": {"type": provider}}
    restored: list[str] = []
    engine = SimpleNamespace(
        is_on_host=provider == "passphrase",
        passphrase=paths.engine / "passphrase",
        is_empty=lambda _: not resources,
        resources=lambda _: resources,
        export=lambda _: json.dumps({"deployment": deployment}),
        restore=lambda _, exported: restored.append(exported),
        restored=restored,
    )
    return SimpleNamespace(
        stack_name="mine",
        stack=SimpleNamespace(name="training"),
        stack_file=paths.stack_file("mine"),
        engine=engine,
        paths=paths,
        console=Console(file=io.StringIO(), width=300),
        is_embedded=embedded,
    )


@pytest.mark.parametrize(("provider", "passphrase"), [("passphrase", "of a"), ("cloud", "of b")])
def test_a_backup_takes_state_and_key_to_another_host(tmp_path: Path, provider: str, passphrase: str) -> None:
    here, there, file = host(tmp_path / "a", 3, provider), host(tmp_path / "b"), tmp_path / "out" / "backup"
    here.stack_file.write_text("config: {trainyard:stack: {teams_from: teams}}\n")
    (team := here.stack_file.parent / "teams/vision.yaml").parent.mkdir()
    team.write_text("name: vision\n")
    back_up(here, file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert ("of a" in file.read_text()) == (provider == "passphrase")
    take_over(Backup.read(file), there)
    assert there.engine.passphrase.read_text() == passphrase
    assert there.engine.restored == [here.engine.export("mine")]
    assert "(yours, which differs from the backup's)" in there.console.file.getvalue()
    mine = there.stack_file.read_text()
    Backup.read(file).write_files(there)
    assert there.stack_file.read_text() == mine
    assert (there.stack_file.parent / "teams/vision.yaml").read_text() == "name: vision\n"


@pytest.mark.parametrize("used", ["the passphrase", "the state"])
def test_nothing_that_a_host_uses_is_overwritten(tmp_path: Path, used: str) -> None:
    here, there = host(tmp_path / "a", 3), host(tmp_path / "b", 2 if used == "the state" else 0)
    if used == "the passphrase":
        (there.paths.engine / "config" / "Pulumi.other.yaml").write_text("encryptionsalt: v1:other\n")
    back_up(here, file := tmp_path / "backup.json")
    words = {"the passphrase": "of this host's stacks .*other", "the state": "2 resources"}
    with pytest.raises(InputError, match=rf"{words[used]}(.|\n)*TRAINYARD_STATE=FOLDER"):
        take_over(Backup.read(file), there)
    assert there.engine.restored == []
    assert there.engine.passphrase.read_text() == ("of b" if used == "the passphrase" else "of a")


def test_what_has_no_state_of_its_own_and_what_is_no_backup_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "backup.json"
    with pytest.raises(InputError, match="no resources in its state"):
        back_up(host(tmp_path / "a"), file)
    with pytest.raises(InputError, match="copy what jobs wrote"):
        back_up(host(tmp_path / "b", 1, embedded=True), file)
    for text in ("{", "[1]", '{"stack": "mine"}'):
        file.write_text(text)
        with pytest.raises(InputError, match="a file that `trainyard stack backup` wrote"):
            Backup.read(file)


def test_a_state_on_one_host_is_warned_of(tmp_path: Path) -> None:
    here, bucket = host(tmp_path / "a"), host(tmp_path / "b", 0, "cloud")
    for each in (here, bucket):
        warn_of_host(each)
    assert f"only this host has the state ({here.paths.engine})" in here.console.file.getvalue()
    assert not bucket.console.file.getvalue()
