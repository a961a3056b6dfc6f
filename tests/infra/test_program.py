"""The program's configuration keys besides the stack: residency, and answers."""

import json
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml

from infra.common.artifacts import ROOT
from infra.errors import InputError
from infra.program import _residency, load_stack
from infra.stackfile.source import STACK_KEY
from tests.infra.stackfile.test_team_files import FORTIETH, stack


def configured(monkeypatch: pytest.MonkeyPatch, **config: Any) -> tuple[str, ...] | None:
    monkeypatch.setattr(
        pulumi.Config, "get_object", lambda _, key: json.loads(json.dumps(config)).get(key), raising=True
    )
    return _residency()


def test_admission_gets_the_residency(monkeypatch: pytest.MonkeyPatch) -> None:
    assert configured(monkeypatch, residency={"allowed": ["in:eu", "us-*"]}) == ("in:eu", "us-*")
    assert configured(monkeypatch) is None


def test_a_jurisdiction_that_the_catalogue_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"trainyard:residency[\s\S]*atlantis[\s\S]*allowed:"):
        configured(monkeypatch, residency={"allowed": ["in:atlantis"]})


def test_the_program_reads_answers_and_logs_what_they_change(monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []
    monkeypatch.setattr(pulumi.log, "info", messages.append)
    section = yaml.safe_load((ROOT / "stacks/Pulumi.local.yaml").read_text())["config"]["trainyard:stack"]
    config = {"trainyard:stack": json.dumps(section), "trainyard:stack.pools[1].nodes": "5"}
    monkeypatch.setattr(pulumi.runtime.config, "CONFIG", ContextVar("config", default=config))
    assert load_stack("none").pools[1].num_nodes == 5
    number = section["pools"][1]["nodes"]
    change = f"trainyard:stack.pools[1].nodes is 5, in place of {number} in trainyard:stack"
    assert messages == [change]
    assert load_stack("none").name == section["name"]


def test_the_program_reads_team_files_beside_the_stack_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = stack(tmp_path, vision=FORTIETH, speech="name: spech\n")
    config = {STACK_KEY: json.dumps(yaml.safe_load(file.read_text())["config"][STACK_KEY])}
    monkeypatch.setattr(pulumi.runtime.config, "CONFIG", ContextVar("config", default=config))
    monkeypatch.setenv("TRAINYARD_STACKS", str(tmp_path))
    for name in ("local", "other"):  # with its file, and with the engine's configuration alone
        with pytest.raises(InputError, match=r"speech.yaml:1:7[\s\S]*rename the file or the team"):
            load_stack(name)
    (tmp_path / "teams" / "speech.yaml").unlink()
    assert load_stack("local").teams[-1].name == load_stack("other").teams[-1].name == "vision"
