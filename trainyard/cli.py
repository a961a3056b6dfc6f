"""The table of all commands of `trainyard`; converts expected failures to messages and exit codes."""

import errno
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from keyword import iskeyword
from typing import TYPE_CHECKING, Any

import typer

from infra.errors import ExitCode, HostError, InputError, InterruptedByUser, Problem, TrainyardError

if TYPE_CHECKING:
    from rich.console import Console

USAGE_ERROR: type[Exception] = getattr(typer, "TyperException", None) or import_module("click").ClickException
"""A wrong flag or argument; typer before 0.26 raises click's."""
REFUSALS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC})
"""The kernel's errors for a folder that is not writable, or full."""

COMMANDS = (
    "run", "jobs", "logs", "shell", "pause", "resume", "cancel", "new", "preview", "up", "down", "status",
    "ui", "cost", "doctor", "explain", "credential",
)  # fmt: skip
"""The commands beside the groups; `trainyard/screen.py` shows those that are not hidden."""
GROUPS: Mapping[str, tuple[str, Sequence[str]]] = {
    "job": ("More of a job.", ("rerun", "search", "forward", "traces", "bundle", "queue")),
    "stack": (
        "The stack file, and what a stack needs around it.",
        ("validate", "inspect", "rehearse", "images", "import", "env", "state-bucket", "deploy-role",
         "unprotect", "unlock", "pipeline", "backup", "restore"),
    ),
    "team": (
        "A team's file, its access and its secrets.", ("login", "access", "secret", "new", "renew", "close"),
    ),
    "catalog": (
        "What stack files can name. Filters are combined.", ("machines", "regions", "fabrics", "prices"),
    ),
    "local": ("The embedded cluster of this host.", ("prepare", "preempt")),
}  # fmt: skip
"""Group → its help and its commands."""
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "credential": {"hidden": True},
    "shell": {"context_settings": {"ignore_unknown_options": True}},
}


def _unwrap_help(of: typer.Typer) -> None:
    """Let the terminal wrap the paragraphs of help texts: typer takes a docstring's lines as they are.

    Examples stand in separate paragraphs, which begin with `[dim]`.
    """
    for command in of.registered_commands:
        paragraphs = (inspect.getdoc(command.callback) or "").split("\n\n")
        command.help = "\n\n".join(
            each if each.startswith("[dim]") else " ".join(each.split()) for each in paragraphs
        )
    for group in of.registered_groups:
        if group.typer_instance is not None:
            _unwrap_help(group.typer_instance)


def app_of(words: Sequence[str] = ()) -> typer.Typer:
    """Return the command line with only the command that is named: Typer takes 2 ms to build each.

    Where the first word names none (an option, nothing), it has all commands.
    """
    named = [word for word in words[:1] if word in (*COMMANDS, *GROUPS)]
    # Without options of its own: typer imports pydantic to read one, before the command can begin.
    own: dict[str, Any] = {"add_completion": False, "add_help_option": False} if named else {}
    app = typer.Typer(name="trainyard", rich_markup_mode="rich", pretty_exceptions_enable=False, **own)
    for name in named or (*COMMANDS, *GROUPS):
        if name in GROUPS:
            app.add_typer(_group_of(name, words[1:]), name=name)
        else:
            _add(app, name)
    app.callback()(lambda: None)  # a Typer of one command without a callback takes no command's name
    _unwrap_help(app)
    return app


def _group_of(name: str, words: Sequence[str]) -> typer.Typer:
    """Return a group with only the command that is named, or all of them."""
    about, members = GROUPS[name]
    named = [word for word in words[:1] if word in members]
    app = typer.Typer(no_args_is_help=not named, help=about, add_help_option=not named)
    for member in named or members:
        _add(app, member, name)
    return app


def _add(app: typer.Typer, name: str, *folder: str) -> None:
    """Add what a module of `trainyard.commands` has: a function of its name, or the `app` of a group."""
    own = f"{name.replace('-', '_')}{'_' * iskeyword(name)}"
    module = import_module(".".join(("trainyard.commands", *folder, own)))
    if hasattr(module, "app"):
        app.add_typer(module.app, name=name)
    else:
        app.command(name, **SETTINGS.get(name, {}))(getattr(module, own))


def main(app: Callable[..., Any]) -> None:
    """Run the command line; every expected failure ends in its text and its exit code."""
    try:
        # 130 after Ctrl-C, or the code of a `typer.Exit`
        code = app(standalone_mode=False, prog_name="trainyard")
    except KeyboardInterrupt:  # while typer still reads the commands' options
        code = ExitCode.INTERRUPTED
    except InterruptedByUser as stop:
        _report_interrupt(stop.text)
        sys.exit(stop.exit_code)
    except TrainyardError as error:
        code = _report(error)
    except USAGE_ERROR as error:
        code = _report_usage(error)
    except Exception as error:
        code = _report(_explained(error))
    if code == ExitCode.INTERRUPTED:
        _report_interrupt("Run the same command again: it continues from here.")
    sys.exit(code)


def _report_usage(error: Any) -> ExitCode:  # noqa: ANN401 -- typer declares no attribute of its errors
    from trainyard.commands.usage import problem_of

    if problem := problem_of(error, {name: members for name, (_, members) in GROUPS.items()}):
        return _report(InputError([problem]))
    error.show()
    return ExitCode.WRONG_INPUT


def _console(*, stderr: bool = False) -> "Console":
    from rich.console import Console  # 40 ms, which a command without a table or an error does not need

    return Console(stderr=stderr)


def _explained(error: Exception) -> TrainyardError:
    """Return the error as problems with their next step; re-raise an unforeseen one."""
    if isinstance(error, ConnectionError):
        from infra.clients.kubernetes import NoAnswer

        return NoAnswer(str(error))
    if isinstance(error, OSError) and error.errno in REFUSALS:
        fix = "make it writable, or set TRAINYARD_STATE and TRAINYARD_CACHE to other folders"
        problem = Problem(str(error.filename), str(error.strerror), "a writable filesystem", fix)
        return HostError([problem])
    if isinstance(error, ModuleNotFoundError):
        from engine.paths import Paths
        from trainyard.stack.packages import Packages

        if packages := Packages.providing(error.name or "", Paths.from_environment()):
            return HostError([packages.problem(str(error))])
    raise error


def _report_interrupt(text: str) -> None:
    from rich.markup import escape

    _console(stderr=True).print(f"[yellow]Interrupted.[/] {escape(text)}", highlight=False, soft_wrap=True)


def _report(error: TrainyardError) -> ExitCode:
    from rich.markup import escape

    errors = _console(stderr=True)
    number = len(error.problems)
    errors.print(f"[red bold]{number} problem{'s' if number > 1 else ''}[/]")
    for problem in error.problems:
        errors.print(escape(str(problem)), highlight=False, soft_wrap=True)
    return error.exit_code
