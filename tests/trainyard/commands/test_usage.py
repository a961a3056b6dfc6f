"""Wrong options, arguments and commands, as the shell sees them: our form of errors, and exit code 2."""

from __future__ import annotations

import pytest

from infra.errors import ExitCode
from trainyard import cli


def wrong(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a wrong command line, which must exit with 2."""
    monkeypatch.setattr("sys.argv", line.split())
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == ExitCode.WRONG_INPUT


@pytest.mark.parametrize(
    ("line", "path", "got", "allowed", "fix"),
    [
        (
            "trainyard run --gpus two",
            "trainyard run --gpus",
            "'two'",
            "a valid integer (Number of GPUs, over all nodes)",
            "see `trainyard run --help`",
        ),
        (
            "trainyard preempt spot-0 --notice 0",
            "trainyard preempt --notice",
            "'0'",
            "greater than or equal to 1 (Seconds from the notice to termination)",
            "see `trainyard preempt --help`",
        ),
        (
            "trainyard catalog machine",
            "trainyard catalog WHAT",
            "'machine'",
            "one of 'machines', 'regions', 'fabrics', 'prices' (What to list)",
            "see `trainyard catalog --help`",
        ),
        (
            "trainyard preempt",
            "trainyard preempt NODE",
            "nothing",
            "The node's name, as in `trainyard status`",
            "add it: `trainyard preempt [OPTIONS] {node}`",
        ),
        (
            "trainyard status --contxt prod",
            "trainyard status",
            "--contxt",
            "--stack, -s, --context",
            "did you mean `trainyard status --context`?",
        ),
        (
            "trainyard status -o json",
            "trainyard status",
            "-o",
            "--stack, -s, --context",
            "see `trainyard status --help`",
        ),
        (
            "trainyard access exprt",
            "trainyard access",
            "exprt",
            "export",
            "did you mean `trainyard access export`?",
        ),
        (
            "trainyard status spot-0 spot-1",
            "trainyard status",
            "also 'spot-0 spot-1'",
            "trainyard status [OPTIONS]",
            "see `trainyard status --help`",
        ),
        (
            "trainyard status -s",
            "-s",
            "Option '-s' requires an argument.",
            "its form in `trainyard COMMAND --help`",
            "see `trainyard COMMAND --help`",
        ),
    ],
    ids=["type", "range", "choice", "missing", "option", "short", "command", "extra", "no value"],
)
def test_a_wrong_command_line_is_reported_in_our_form(
    line: str,
    path: str,
    got: str,
    allowed: str,
    fix: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong(line, monkeypatch)
    problem = f"1 problem\n{path}\n  got:     {got}\n  allowed: {allowed}\n  fix:     {fix}\n"
    assert capsys.readouterr().err == problem


def test_hidden_commands_are_not_offered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong("trainyard credentials", monkeypatch)
    output = capsys.readouterr().err
    assert "allowed: up, down, " in output
    assert output.count("credential") == 1, "only what was given"


def test_a_group_of_commands_without_one_shows_its_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong("trainyard secret", monkeypatch)
    output = "".join(capsys.readouterr())
    assert "Usage: trainyard secret" in output
    assert "got:" not in output
