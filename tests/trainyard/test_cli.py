"""The command line as the shell sees it: exit codes, error messages, help and options."""

from __future__ import annotations

import errno
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from infra.clients.kubernetes import ApiError, NoAnswer
from infra.errors import ExitCode, InputError, Problem
from trainyard import cli
from trainyard.commands.price import price
from trainyard.commands.validate import validate


def ends_with(outcome: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> int | str | None:
    """Run a command line whose only command is `outcome`; return the exit code."""
    app = typer.Typer()
    app.command()(lambda: outcome())
    monkeypatch.setattr("sys.argv", ["trainyard"])
    with pytest.raises(SystemExit) as end:
        cli.main(app)
    return end.value.code


def raising(error: BaseException) -> Callable[[], object]:
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize(
    ("words", "built"),
    [
        (["logs", "--help"], ["logs"]),
        (["deploy-role"], ["deploy-role"]),
        (["secret", "set"], ["secret"]),
        (["--help"], None),
        (["rum"], None),
        ([], None),
    ],
)
def test_only_a_named_command_is_built(words: list[str], built: list[str] | None) -> None:
    group: Any = typer.main.get_command(cli.app_of(words))
    assert sorted(group.commands) == sorted(built or cli.COMMANDS)


@pytest.mark.parametrize(
    ("outcome", "code", "message"),
    [
        (lambda: None, None, ""),
        (raising(InputError([Problem("pools", "none", "one", "add one")])), 2, "1 problem"),
        (raising(typer.Exit(3)), 3, ""),
        (raising(KeyboardInterrupt()), 130, "Run the same command again"),
        (raising(PermissionError(errno.EACCES, "denied", "/var/lib")), 3, "/var/lib"),
        (raising(ConnectionResetError(errno.ECONNRESET, "reset by peer")), 1, "reset by peer"),
        (raising(NoAnswer("Connection aborted")), 1, "submitted jobs continue"),
    ],
    ids=["done", "wrong input", "exit", "Ctrl-C", "no permission", "reset", "aborted"],
)
def test_every_outcome_has_its_exit_code_and_message(
    outcome: Callable[[], object],
    code: int | None,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ends_with(outcome, monkeypatch) == code
    assert message in capsys.readouterr().err


def test_an_interrupt_before_the_command_begins_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(**_options: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as end:
        cli.main(interrupted)
    assert end.value.code == ExitCode.INTERRUPTED
    assert "Run the same command again" in capsys.readouterr().err


def test_a_refusal_of_the_api_server_is_reported_with_its_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = ApiError(403, 'pods is forbidden: User "mei" cannot list')
    assert ends_with(raising(refused), monkeypatch) == 1
    assert 'User "mei" cannot list' in (output := capsys.readouterr().err)
    assert "--context" in output


def test_a_refusal_of_admission_is_not_reported_as_a_missing_right(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = ApiError(422, "denied request: label kueue.x-k8s.io/queue-name: name a queue")
    assert ends_with(raising(refused), monkeypatch) == 1
    assert "correct what the message names" in capsys.readouterr().err


def test_an_unexpected_exception_is_not_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError):
        ends_with(raising(FileNotFoundError(errno.ENOENT, "missing")), monkeypatch)


def test_a_fleet_is_validated_and_no_other_command_takes_it_for_a_cluster(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    validate("hybrid")
    assert "is valid: ohio in us-east-2, amsterdam in westeurope" in capsys.readouterr().out
    with pytest.raises(InputError, match=r"pulumi up -s hybrid .*docs/fleet\.md"):
        price(stack="hybrid")


def test_the_terminal_wraps_the_paragraphs_of_a_help_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    lines = [line.strip() for line in CliRunner().invoke(cli.app_of(), ["run", "--help"]).output.splitlines()]
    begin = next(index for index, line in enumerate(lines) if line.startswith("`python FILE`"))
    end = lines.index("", begin)
    assert all(len(line) > 80 for line in lines[begin : end - 1])
    assert "trainyard run job.yaml" in lines, "examples have a line each"


OF_MEMBERS = {*cli.COMMANDS[cli.COMMANDS.index("run") :]} - {"access", "login"}
"""`login` knows its cluster by the file."""


@pytest.mark.parametrize("name", sorted(OF_MEMBERS))
def test_every_command_of_members_takes_stack_context_and_team(name: str) -> None:
    app = cli.app_of([name])
    groups = [group.typer_instance for group in app.registered_groups]
    for each in [app, *filter(None, groups)]:
        for command in each.registered_commands:
            assert command.callback is not None
            assert {"stack", "context", "team"} <= set(inspect.signature(command.callback).parameters)


@pytest.mark.parametrize("command", [["jobs"], ["queue"], ["secret", "ls"], ["images"]])
def test_an_output_format_that_a_command_does_not_have_is_refused(command: list[str]) -> None:
    refused = CliRunner().invoke(cli.app_of(), [*command, "-o", "markdown"])
    assert refused.exit_code == ExitCode.WRONG_INPUT
    assert "'markdown' is not one of 'text', 'json'" in " ".join(refused.output.replace("│", "").split())
