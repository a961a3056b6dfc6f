"""The entry point, in a process of its own that gets SIGINT while it imports the command line."""

import subprocess
import sys

import pytest

from tests.processes import TIMEOUT_SECONDS

INTERRUPTED = """
import os, signal, sys
from importlib.metadata import entry_points

class Interruption:
    def find_spec(name, path, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.{handler})
sys.meta_path.insert(0, Interruption)
sys.argv = ["trainyard", "jobs", "--help"]
[installed] = entry_points(group="console_scripts", name="trainyard")
sys.exit(installed.load()())
"""


def run(module: str, handler: str) -> subprocess.CompletedProcess[str]:
    """Run `trainyard jobs --help`, which gets SIGINT as it begins to import this module."""
    program = INTERRUPTED.format(module=module, handler=handler)
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)


@pytest.mark.parametrize("module", ["trainyard.cli", "typer", "yaml", "trainyard.stack.session"])
def test_an_interrupt_while_it_imports_ends_it_quietly(module: str) -> None:
    ended = run(module, "default_int_handler")
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_a_program_in_the_background_ignores_interrupts() -> None:
    ended = run("trainyard.stack.session", "SIG_IGN")
    assert ended.returncode == 0
    assert "Usage: trainyard" in ended.stdout
