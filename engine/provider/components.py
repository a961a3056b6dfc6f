"""Runs the construction of each component resource in a separate process, so that several can be constructed
at once.

A new process can load an SDK that was installed a moment ago, and the SDK's global state serves one component
only. The process reads the engine's request on stdin and answers on stdout. Its stderr is shown if it fails.
"""

import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from engine.paths import REPOSITORY, START
from engine.tied import end

COMPONENTS: Mapping[str, str] = {
    "trainyard:index:Cluster": "trainyard.component",
    "trainyard:index:Fleet": "trainyard.component",
    "trainyard:index:TrainingJob": "trainyard.component",
}
"""Component's type token → module that constructs the component (`python -m`)."""
REFUSED = 2
"""Exit code of a process that answers with an error status: the input is wrong."""


@dataclass(frozen=True)
class ComponentResult:
    """Result of a component's process."""

    code: int
    answer: bytes
    error_output: str


class Components:
    """Starts the processes, and ends them when the user interrupts."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()

    def construct(self, token: str, request: bytes, engine: str) -> ComponentResult:
        """Declare one component, in a process that runs to its end."""
        process = subprocess.Popen(
            [sys.executable, "-P", str(REPOSITORY / START), COMPONENTS[token], engine],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._running.add(process)
        try:
            answer, error_output = process.communicate(request)
            return ComponentResult(process.returncode, answer, error_output.decode(errors="replace").strip())
        finally:
            self._running.discard(process)

    def stop(self) -> None:
        """End all that run."""
        for process in list(self._running):
            threading.Thread(target=end, args=(process,), daemon=True).start()
