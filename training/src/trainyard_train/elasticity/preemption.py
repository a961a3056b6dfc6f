"""Hearing that this process is to leave, whatever the main thread is busy with.

A thread waits for the signal, because a handler would run only when the main thread is back in Python,
which it is not while it waits for other ranks; and because process 1 of a container has no default
action for SIGTERM.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
from typing import Final

from trainyard_train.elasticity.exit_codes import EXIT_FAILED, EXIT_PREEMPTED
from trainyard_train.observability.rank_log import log_line

_SIGNALS: Final = {signal.SIGTERM, signal.SIGINT}


class Notice:
    """A request to leave, made by SIGTERM, by Ctrl-C, or by a cloud (see `elasticity.instance_metadata`)."""

    def __init__(self, leave_seconds: float) -> None:
        """Args: leave_seconds: from the request to the exit at the latest."""
        self._leave_seconds = leave_seconds
        self._requested = threading.Event()
        self._stepping = False

    @property
    def requested(self) -> bool:
        """Whether this process was told to leave."""
        return self._requested.is_set()

    def request(self) -> None:
        """Ask for leave from within the process."""
        self._requested.set()

    def watch(self) -> None:
        """Start listening. Call it from the main thread, before any other thread exists."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        threading.Thread(target=self._listen, name="notice", daemon=True).start()

    def begin_steps(self) -> None:
        """From now on a notice is answered at the end of a step; until now it ends the process at once."""
        self._stepping = True

    def sleep(self, seconds: float) -> None:
        """Sleep, unless a notice comes first."""
        self._requested.wait(seconds)

    def tell(self, word: str) -> None:
        """Ask for leave, from any thread, with the reason; after `leave_seconds` the process ends anyhow."""
        if not self._stepping:
            _leave(f"{word} before the first step: nothing to save", EXIT_PREEMPTED)
        log_line(f"{word}: saving at the end of this step, then leaving")
        self.request()
        deadline = threading.Timer(self._leave_seconds, self._give_up)
        deadline.daemon = True
        deadline.start()

    def _listen(self) -> None:
        self.tell(signal.Signals(signal.sigwait(_SIGNALS)).name)
        signal.sigwait(_SIGNALS)
        _leave("told twice: leaving at once; the last committed checkpoint stands", EXIT_FAILED)

    def _give_up(self) -> None:
        faulthandler.dump_traceback(all_threads=True)
        _leave(
            f"no checkpoint within {self._leave_seconds:g} s of the notice: leaving without;"
            " the last committed one stands",
            EXIT_FAILED,
        )


def _leave(text: str, code: int) -> None:
    log_line(text)
    os._exit(code)  # the main thread may be inside a collective that will never return
