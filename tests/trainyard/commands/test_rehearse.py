"""A rehearsal's search for leaked secrets in the files that it has written."""

from pathlib import Path

import pytest

from engine.paths import Paths
from rehearsal.leaks import SECRET, Leak
from trainyard.commands.stack.rehearse.project import leaks_left

PASSPHRASE = "four words of passphrase"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """A rehearsal's folders, with the files that have secrets by design."""
    for file in ("state/made/aws/one.json", "state/made/kubeconfig", "elsewhere/key"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(f"token: {SECRET}")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / ".venv").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "project" / "key").symlink_to(tmp_path / "elsewhere" / "key")
    paths = Paths(tmp_path / "cache", tmp_path / "state", tmp_path / "project")
    paths.engine.mkdir()
    (paths.engine / "passphrase").write_text(PASSPHRASE)
    return paths


def test_a_secret_in_a_file_for_secrets_is_not_a_leak(paths: Paths) -> None:
    assert leaks_left(paths) == []


@pytest.mark.parametrize(
    "file",
    [
        "state/pulumi/.pulumi/history/trainyard/aws/aws-1.checkpoint.json",
        "state/pulumi/.pulumi/stacks/trainyard/aws.json.bak",
        "state/pulumi/home/logs/engine.log",
        "project/stacks/Pulumi.aws.yaml",
    ],
)
def test_a_secret_is_found_in_every_folder_of_the_engine_and_the_program(file: str, paths: Paths) -> None:
    planted = paths.repository.parent / file
    planted.parent.mkdir(parents=True, exist_ok=True)
    planted.write_text(f"begun\n  value: {SECRET}\n  by: {PASSPHRASE}\n")
    kinds = ["a fake provider's secret", "the passphrase of the state"]
    assert leaks_left(paths) == [
        Leak(f"{planted}:{line}", kind) for line, kind in zip((2, 3), kinds, strict=True)
    ]
