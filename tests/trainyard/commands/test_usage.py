"""Wrong options, arguments and commands, as the shell sees them: our form of errors, and exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from infra.errors import ExitCode
from trainyard import cli


def wrong(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a wrong command line, which must exit with 2."""
    monkeypatch.setattr("sys.argv", line.split())
    with pytest.raises(SystemExit) as end:
        cli.main(cli.app_of(line.split()[1:]))
    assert end.value.code == ExitCode.WRONG_INPUT


CASES = yaml.safe_load(Path(__file__).with_name("usage.yaml").read_text())


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_wrong_command_line_is_reported_in_our_form(
    case: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong(case["line"], monkeypatch)
    got, allowed, fix = case["got"], case["allowed"], case["fix"]
    problem = f"1 problem\n{case['path']}\n  got:     {got}\n  allowed: {allowed}\n  fix:     {fix}\n"
    assert capsys.readouterr().err == problem


def test_hidden_commands_are_not_offered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong("trainyard credentials", monkeypatch)
    output = capsys.readouterr().err
    assert "allowed: run, jobs, " in output
    assert output.count("credential") == 1, "only what was given"


@pytest.mark.parametrize("group", cli.GROUPS)
def test_a_command_without_its_group_names_the_group(
    group: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = cli.GROUPS[group][1][0]
    wrong(f"trainyard {command}", monkeypatch)
    assert f"fix:     did you mean `trainyard {group} {command}`?\n" in capsys.readouterr().err


def test_a_group_of_commands_without_one_shows_its_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong("trainyard team secret", monkeypatch)
    output = "".join(capsys.readouterr())
    assert "Usage: trainyard team secret" in output
    assert "got:" not in output
