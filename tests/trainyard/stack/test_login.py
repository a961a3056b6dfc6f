"""`trainyard team login`: which files it refuses, and how it merges one into a kubeconfig.

A login on a real cluster is in tests/e2e/test_member.py.
"""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.errors import InputError
from tests.tables import table
from trainyard.stack.login import kubeconfig_file, merged, read, write

CASES = table(__file__)
ACCESS: dict[str, Any] = CASES["access"]


def saved(folder: Path, **changes: Any) -> Path:
    file = folder / "training-research.access.yaml"
    file.write_text(yaml.safe_dump({**copy.deepcopy(ACCESS), **changes}))
    return file


def test_a_context_is_added_and_the_rest_of_the_kubeconfig_is_unchanged(tmp_path: Path) -> None:
    mine = {"name": "mine", "user": {"token": "kept"}}
    before: dict[str, Any] = {"users": [mine], "current-context": "mine", "preferences": {"colors": True}}
    kubeconfig = tmp_path / ".kube" / "config"
    access = read(saved(tmp_path))
    for _ in range(2):  # the second time changes nothing
        write(kubeconfig, merged(before, access, kubeconfig))
        before = yaml.safe_load(kubeconfig.read_text())
    assert before["users"] == [mine, {"name": "training-research", "user": ACCESS["user"]}]
    assert before["current-context"] == "mine"
    assert before["preferences"] == {"colors": True}
    [context] = before["contexts"]
    assert context["context"]["namespace"] == "team-research"
    assert kubeconfig.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in kubeconfig.parent.iterdir()] == ["config"]


def test_another_cluster_of_that_name_is_not_replaced(tmp_path: Path) -> None:
    other = {"clusters": [{"name": "training-research", "cluster": {"server": "https://10.9.9.9"}}]}
    with pytest.raises(InputError, match="kubectl config delete-cluster training-research"):
        merged(other, ACCESS, tmp_path)


@pytest.mark.parametrize("command", ["sh", "/tmp/aws", "./kubelogin", ""])
def test_a_file_with_a_program_that_is_not_allowed_is_refused(tmp_path: Path, command: str) -> None:
    file = saved(tmp_path, user={"exec": {"command": command}})
    with pytest.raises(InputError, match=r"user\.exec\.command"):
        read(file)
    if command:
        assert read(file, allowed=command)["name"] == "training-research"


def test_a_file_with_a_variable_that_changes_which_code_runs_is_refused(tmp_path: Path) -> None:
    plugin = {**ACCESS["user"]["exec"], "env": [{"name": "LD_PRELOAD", "value": "/tmp/x.so"}]}
    with pytest.raises(InputError, match="LD_PRELOAD"):
        read(saved(tmp_path, user={"exec": plugin}))


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    file = saved(tmp_path, cluster={"server": "http://10.0.0.1"}, user={"exec": {"command": "sh"}})
    with pytest.raises(InputError) as wrong:
        read(file)
    assert len(wrong.value.problems) == 2


@pytest.mark.parametrize("text", ["", "a: [", "format: other/1", "[]"])
def test_another_kind_of_file_is_refused_with_where_to_get_one(tmp_path: Path, text: str) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    with pytest.raises(InputError, match="trainyard team access"):
        read(file)


@pytest.mark.parametrize(("change", "path"), CASES["wrong_types"], ids=[p for _, p in CASES["wrong_types"]])
def test_an_edited_file_is_refused_with_the_path(change: dict[str, Any], path: str, tmp_path: Path) -> None:
    file = saved(tmp_path, **change)
    with pytest.raises(InputError) as wrong:
        read(file)
    [problem] = wrong.value.problems
    assert problem.path == f"{file}:{path}"
    assert "secret" not in problem.got


def test_a_kubeconfig_that_is_a_link_remains_one(tmp_path: Path) -> None:
    kubeconfig, target = tmp_path / "config", tmp_path / "elsewhere" / "config"
    kubeconfig.symlink_to(target)
    for name in ("before", "after"):
        write(kubeconfig, {"current-context": name})
        assert kubeconfig.is_symlink()
        assert yaml.safe_load(target.read_text()) == {"current-context": name}


def test_the_first_file_of_the_variable_is_written_to() -> None:
    assert kubeconfig_file({"KUBECONFIG": ":/a:/b", "HOME": "/home/mei"}) == Path("/a")
    assert kubeconfig_file({"HOME": "/home/mei"}) == Path("/home/mei/.kube/config")
