"""Converts typer's errors for wrong options, arguments and commands to problems."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from infra.errors import Problem, nearest

_RULE = re.compile(r"Input should be (.+?)(?:, unable to .*)?$|(one of .+?)\.?$")
"""What pydantic and typer say of a value that they refuse."""
_UNKNOWN_COMMAND = re.compile(r"No such command '(.*?)'")
_TOO_MANY = re.compile(r"Got unexpected extra argument.*? \((.*)\)$")


def problem_of(
    error: Any,  # noqa: ANN401 -- typer declares no attribute of its errors
    groups: Mapping[str, Sequence[str]],
) -> Problem | None:
    """Return what is wrong on the command line; None for an error that is only a help text.

    `groups`: the commands of each group, of which one was perhaps meant.
    """
    context, option = getattr(error, "ctx", None), getattr(error, "option_name", "")
    if context is None:  # typer's parser does not know the command
        shown = "`trainyard COMMAND --help`"
        return Problem(option, error.message, f"its form in {shown}", f"see {shown}") if option else None
    command = context.command_path
    if isinstance(error, typer.BadParameter) and error.param is not None:
        return _wrong_value(command, error)
    if option:
        parameters = [each for each in context.command.params if not each.hidden]
        names = [name for each in parameters for name in (*each.opts, *each.secondary_opts)]
        return _unknown(command, option, [name for name in names if name[:1] == "-"])
    if unknown := _UNKNOWN_COMMAND.match(error.message):
        commands = context.command.commands
        names = [name for name, each in commands.items() if not each.hidden]
        group = next((name for name, members in groups.items() if unknown[1] in members), "")
        is_below = group and context.parent is None
        fix = f"did you mean `{command} {group} {unknown[1]}`?" if is_below else ""
        return _unknown(command, unknown[1], names, fix)
    if extra := _TOO_MANY.match(error.message):
        takes_stack = any("--stack" in each.opts for each in context.command.params)
        is_one = takes_stack and " " not in extra[1]
        fix = f"a stack is named by -s: `{command} -s {extra[1]}`" if is_one else _help(command)
        return Problem(command, f"also {extra[1]!r}", _usage(context), fix)
    return None


def _wrong_value(command: str, error: Any) -> Problem:  # noqa: ANN401
    """Return the problem of a value that is missing or refused."""
    is_argument = error.param.param_type_name == "argument"
    name = error.param.opts[0].upper() if is_argument else error.param.opts[0]
    path, meaning = f"{command} {name}", _meaning(error.param)
    if hasattr(error, "param_type"):  # a MissingParameter
        return Problem(path, "nothing", meaning, f"add it: `{_usage(error.ctx)}`")
    refusals = error.__cause__.errors() if hasattr(error.__cause__, "errors") else []
    rule = _RULE.search(error.message)
    if not refusals or not rule:
        return Problem(path, error.message, meaning, _help(command))
    return Problem(path, repr(refusals[0]["input"]), f"{rule[1] or rule[2]} ({meaning})", _help(command))


def _unknown(command: str, got: str, names: Sequence[str], fix: str = "") -> Problem:
    stripped = {name.lstrip("-"): name for name in names}
    near = nearest(got.lstrip("-"), stripped)
    fix = fix or (f"did you mean `{command} {stripped[near]}`?" if near else _help(command))
    return Problem(command, got, ", ".join(names), fix)


def _usage(context: Any) -> str:  # noqa: ANN401
    return str(context.get_usage()).removeprefix("Usage: ")


def _meaning(parameter: Any) -> str:  # noqa: ANN401
    return str(parameter.help or parameter.name).rstrip(".")


def _help(command: str) -> str:
    return f"see `{command} --help`"
