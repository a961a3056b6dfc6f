"""Kills of the command, the engine and its plugins at given moments of an `up`."""

import signal
from collections.abc import Callable
from functools import partial

import psutil

from tests.e2e.stack import LocalStack, Running
from tests.processes import kill


def kill_all(stack: LocalStack, command: Running) -> None:
    """Kill the command, the engine and its plugins at once, as the out-of-memory killer does."""
    victims = stack.engine_processes()
    command.signal(signal.SIGKILL)
    for process in victims:
        kill(process)
    psutil.wait_procs(victims, timeout=30)


def kill_engine(stack: LocalStack, _command: Running) -> None:
    """Kill only the engine: its plugins continue, and the command sees its end."""
    for process in stack.engine_processes():
        kill(process, only="pulumi")


def kill_command(_stack: LocalStack, command: Running) -> None:
    command.signal(signal.SIGKILL)


Moment = tuple[Callable[[LocalStack, Running], None], str, Callable[[LocalStack], bool]]
"""Function that kills, pattern of the output and condition that it waits for."""
NODES: Moment = (kill_command, "up trial …", lambda stack: (stack.run / "nodes").exists())
CONTROL_PLANE: Moment = (
    kill_all,
    "up trial …",
    lambda stack: (stack.run / "control" / "kube-apiserver.log").exists(),
)
DEFINITIONS: Moment = (
    kill_engine,
    r"created +trainyard:kubernetes:CustomResourceDefinitions",
    lambda _: True,
)
OPERATORS: Moment = (kill_all, r"created +apps/v1:Deployment", lambda _: True)
ORPHAN: Moment = (kill_command, r"created +trainyard:kubernetes:CustomResourceDefinitions", lambda _: True)


def kill_up(stack: LocalStack, moment: Moment) -> None:
    """Start an `up` and kill it at the moment; the command must fail."""
    kill_some, words, condition = moment
    up = stack.start("up")
    up.prints(words)
    up.wait_for(partial(condition, stack), words)
    kill_some(stack, up)
    assert up.end().code != 0
