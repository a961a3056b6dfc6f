"""Migrations of stack files from older schema versions, which change no other line."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from infra.common.artifacts import ROOT
from infra.errors import InputError
from infra.stackfile.fleet import Fleet
from infra.stackfile.migrations import LATEST, STEPS, migrate
from infra.stackfile.stack import Stack
from trainyard.commands.migrate import migrate_file

SHIPPED = sorted((ROOT / "stacks").glob("Pulumi.*.yaml"))
BLOCK = """config:
  trainyard:stack: # ours
    schema: 0
    # the cluster
    name: old

    provider:
      kind: aws
      filesystem:
        kind: fsx-lustre # fast
        backup_days: 7 # a week
        size: 3
    storage:
      checkpoints: {size_gib: 100} # small

    # below
    queues: []
"""


def test_each_version_has_a_migration() -> None:
    assert list(STEPS) == list(range(LATEST))
    for model in (Stack, Fleet):
        assert model.model_json_schema()["properties"]["schema"]["const"] == LATEST


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.name)
def test_a_present_file_is_unchanged(file: Path) -> None:
    assert migrate(file.read_text()) == file.read_text()


def test_a_key_moves_and_no_other_line_changes() -> None:
    before, after = BLOCK.splitlines(), migrate(BLOCK).splitlines()
    assert [line for line in before if line not in after] == [
        "    schema: 0",
        "        backup_days: 7 # a week",
        "      checkpoints: {size_gib: 100} # small",
    ]
    assert [line for line in after if line not in before] == [
        "    schema: 1",
        "      # a week",
        "      checkpoints: {size_gib: 100, snapshot_days: 7} # small",
    ]


def test_a_comment_moves_with_its_key() -> None:
    text = BLOCK.replace(
        "checkpoints: {size_gib: 100} # small", "checkpoints:\n        size_gib: 100 # small"
    )
    assert "        size_gib: 100 # small\n        snapshot_days: 7  # a week\n" in migrate(text)


@pytest.mark.parametrize(
    ("filesystem", "remaining"),
    [
        ("{kind: efs, backup_days: 7}", "{kind: efs}"),
        ("{backup_days: 7, kind: efs}", "{kind: efs}"),
        ("{kind: efs, backup_days: 7, id: x}", "{kind: efs, id: x}"),
    ],
)
def test_a_key_moves_out_of_a_flow_mapping(filesystem: str, remaining: str) -> None:
    text = f"config:\n  trainyard:stack:\n    provider:\n      filesystem: {filesystem}\n"
    text += "    storage:\n      checkpoints:\n        size_gib: 1\n\n    # end\n"
    after = migrate(text)
    assert f"filesystem: {remaining}\n" in after
    assert "        size_gib: 1\n        snapshot_days: 7\n\n    # end\n" in after
    assert after.startswith("config:\n  trainyard:stack:\n    schema: 1\n    provider:\n")


def test_a_file_from_before_the_first_release_is_shown_and_then_written(tmp_path: Path) -> None:
    """Such files have `schema: 1`, and are of version 0."""
    now = (ROOT / "stacks/Pulumi.aws-dev.yaml").read_text()
    old = now.replace("{kind: efs}", "{kind: efs, backup_days: 7}").replace(", snapshot_days: 7}", "}")
    assert old.count("backup_days") == 1 and "snapshot_days" not in old
    file, shown = tmp_path / "Pulumi.old.yaml", io.StringIO()
    file.write_text(old)
    migrate_file(file, Console(file=shown, width=200), since=0)
    assert "-      filesystem: {kind: efs, backup_days: 7}" in shown.getvalue()
    assert file.read_text() == old
    migrate_file(file, Console(file=shown, width=200), since=0, write=True)
    assert file.read_text() == now


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (BLOCK.replace("schema: 0", f"schema: {LATEST + 1}"), "schema"),
        (BLOCK.replace("schema: 0", "schema: one"), "schema"),
        (
            BLOCK.replace("size_gib: 100", "size_gib: 100, snapshot_days: 3"),
            "storage.checkpoints.snapshot_days",
        ),
        (BLOCK.replace("checkpoints: {size_gib: 100}", "other: 1"), "storage.checkpoints"),
        ("config: {}", "config"),
    ],
)
def test_what_cannot_be_migrated_is_reported_with_a_reason(text: str, path: str) -> None:
    with pytest.raises(InputError) as error:
        migrate(text)
    (problem,) = error.value.problems
    assert problem.path == path and problem.fix
