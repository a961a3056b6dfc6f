"""The command line as the shell sees it: exit codes, error messages, help and options."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator
from importlib import reload
from pathlib import Path
from typing import Any

import click
import pytest
import typer
from typer.testing import CliRunner

from engine.paths import Paths
from infra.clients.kubernetes import ApiError, NoAnswer
from infra.errors import ExitCode, InputError, Problem
from tests.tables import table
from trainyard import cli, screen
from trainyard.commands.cost import cost
from trainyard.commands.stack.validate import validate
from trainyard.stack.session import Session

WHOLE = {**dict.fromkeys(cli.COMMANDS), **{name: members for name, (_, members) in cli.GROUPS.items()}}


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
        (["logs", "--help"], {"logs": None}),
        (["stack", "deploy-role"], {"stack": ["deploy-role"]}),
        (["team", "secret", "set"], {"team": ["secret"]}),
        (["local", "--help"], {"local": ["prepare", "preempt"]}),
        (["local", "rum"], {"local": ["prepare", "preempt"]}),
        (["rum"], WHOLE),
        ([], WHOLE),
    ],
)
def test_only_a_named_command_is_built(words: list[str], built: dict[str, Any]) -> None:
    group: Any = typer.main.get_command(cli.app_of(words))
    found = {name: sorted(getattr(each, "commands", ())) for name, each in group.commands.items()}
    assert found == {name: sorted(members or ()) for name, members in built.items()}


def test_the_first_screen_has_all_commands_and_fits_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRAINYARD_CONTEXT", "training-research")
    screen.show([])
    shown = capsys.readouterr().out
    assert len(lines := shown.splitlines()) <= 24 and max(map(len, lines)) <= 80
    assert "Next      trainyard run" in shown
    screen.show(["--help"])
    text, more = capsys.readouterr().out.partition("Exit codes")[0].split("More:")
    listed = re.findall(r"(?:^|  )  ([a-z]+)(?=  )", text, re.MULTILINE)
    [several] = re.findall(r"^  (\w+(?:, \w+)+)", text, re.MULTILINE)
    listed += several.split(", ")
    assert len(listed) <= 17
    assert set(listed) == {name for name in cli.COMMANDS if not cli.SETTINGS.get(name, {}).get("hidden")}
    assert re.findall("[a-z]+", more)[1:] == [*cli.GROUPS]


@pytest.mark.parametrize(("files", "environment", "following"), table(__file__, "next"))
def test_the_bare_command_says_what_to_type_next(
    files: list[str], environment: dict[str, str], following: str, tmp_path: Path
) -> None:
    for name in files:
        (tmp_path / f"Pulumi.{name}.yaml").touch()
    paths = Paths(tmp_path / "cache", tmp_path, stacks_folder=tmp_path)
    paths.cluster_run("up").mkdir(parents=True)
    (paths.cluster_run("up") / "cluster.json").touch()
    assert list(screen.here(paths, environment))[-1] == f"Next      {following}"


@pytest.mark.parametrize(("files", "usual"), [(["aws"], "aws"), (["aws", "gcp"], "local"), ([], "local")])
def test_the_only_stack_of_a_folder_needs_no_name(files: list[str], usual: str, tmp_path: Path) -> None:
    for name in files:
        (tmp_path / f"Pulumi.{name}.yaml").touch()
    paths = Paths(tmp_path, tmp_path, stacks_folder=tmp_path)
    assert Session("", paths).stack_name == usual
    assert Session("gcp", paths).stack_name == "gcp"


def test_the_project_that_is_worked_in_has_the_stack_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stacks").mkdir()
    assert Paths.from_environment({}).stacks.is_absolute(), "a folder of that name alone is no project"
    (tmp_path / "Pulumi.yaml").touch()
    assert Paths.from_environment({}).stacks == Path("stacks")
    assert Paths.from_environment({"TRAINYARD_STACKS": "other"}).stacks == Path("other")


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
        (raising(ApiError(403, 'pods is forbidden: User "mei"')), 1, 'User "mei"'),
        (raising(ApiError(403, "pods is forbidden")), 1, "--context"),
        (raising(ApiError(422, "label queue-name: name a queue")), 1, "correct what the message names"),
    ],
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


def test_a_typer_that_raises_clicks_errors_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as older:
        older.delattr(typer, "TyperException")
        assert reload(cli).USAGE_ERROR is click.ClickException
    assert reload(cli).USAGE_ERROR is typer.TyperException


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
        cost(stack="hybrid")


def test_validate_says_what_policies_ask_for_and_the_file_lacks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    organisation = tmp_path / "organisation.json"
    organisation.write_text('{"cost-tags": {"required": ["owner", "budget"]}}')
    monkeypatch.setenv("TRAINYARD_ORGANISATION", str(organisation))
    monkeypatch.setenv("COLUMNS", "200")
    validate("aws")
    said = capsys.readouterr().out
    assert "target.tags: no budget, which the policy cost-tags" in said
    assert "no checkpoint_seconds, for spot-checkpoint-time" in said


def test_the_terminal_wraps_the_paragraphs_of_a_help_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    lines = [line.strip() for line in CliRunner().invoke(cli.app_of(), ["run", "--help"]).output.splitlines()]
    begin = next(index for index, line in enumerate(lines) if line.startswith("`python FILE`"))
    end = lines.index("", begin)
    assert all(len(line) > 80 for line in lines[begin : end - 1])
    assert "trainyard run job.yaml" in lines, "examples have a line each"


OF_MEMBERS = ["run", "jobs", "logs", "shell", "pause", "resume", "cancel"]
OF_MEMBERS += [f"job {name}" for name in cli.GROUPS["job"][1] if name != "search"]
OF_MEMBERS += [f"team secret {name}" for name in ("set", "ls", "rm")]


def command_of(line: str) -> Any:
    found: Any = typer.main.get_command(cli.app_of(line.split()))
    for word in line.split():
        found = found.commands[word]
    return found


@pytest.mark.parametrize("line", OF_MEMBERS)
def test_every_command_of_members_takes_stack_context_and_team(line: str) -> None:
    assert {"stack", "context", "team"} <= {each.name for each in command_of(line).params}


def commands(group: Any, path: str = "trainyard") -> Iterator[tuple[str, Any]]:
    for name, each in group.commands.items():
        if hasattr(each, "commands"):
            yield from commands(each, f"{path} {name}")
        elif not each.hidden:
            yield f"{path} {name}", each


def test_arguments_of_one_kind_are_spelled_one_way() -> None:
    spelled: dict[str, set[tuple[str, ...]]] = {}
    for line, command in commands(typer.main.get_command(cli.app_of())):
        for each in command.params:
            if each.param_type_name == "argument":
                metavar = str(each.metavar or each.name).casefold()
                assert "stack" not in metavar, f"{line}: a stack is named by -s"
            else:
                spelled.setdefault(each.name, set()).add((*each.opts, *each.secondary_opts))
    assert {name: ways for name, ways in spelled.items() if len(ways) > 1} == {}


@pytest.mark.parametrize(
    "command", [["jobs"], ["job", "queue"], ["team", "secret", "ls"], ["stack", "images"]]
)
def test_an_output_format_that_a_command_does_not_have_is_refused(command: list[str]) -> None:
    refused = CliRunner().invoke(cli.app_of(), [*command, "-o", "markdown"])
    assert refused.exit_code == ExitCode.WRONG_INPUT
    assert "'markdown' is not one of 'text', 'json'" in " ".join(refused.output.replace("│", "").split())
