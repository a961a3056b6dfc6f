"""`PreemptionNotice` turns a signal or a cloud's notice into a request to save and exit at the end of the
step. It ends the process at the deadline or at a second signal, and at once before the first step. Signals
are received even while the main thread is blocked.

Python runs a signal's handler only in the main thread, between two instructions of Python. A main thread that
waits for other ranks is in C. Python's own handler in C runs at once, in any thread, and writes the signal's
number to the wakeup descriptor. A thread of this module reads it there. So it does not matter which threads
exist already, nor that process 1 of a container has no default action for SIGTERM.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import threading
import weakref
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any, Final

from trainyard_train.contract import EXIT_FAILED, EXIT_PREEMPTED
from trainyard_train.observability.rank_log import log_line

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class PreemptionNotice:
    """A preemption notice, from SIGTERM, by Ctrl-C, or by a cloud (see `elasticity.instance_metadata`)."""

    def __init__(self, exit_seconds: float) -> None:
        """Args: exit_seconds: from the request to the exit at the latest."""
        self._exit_seconds = exit_seconds
        self._requested = threading.Event()
        self._stepping = False
        self._deadline: threading.Timer | None = None
        self._pipe: tuple[socket.socket, socket.socket] | None = None
        self._before: dict[signal.Signals, Any] = {}
        """The former handlers, which `stop` restores."""
        self._wakeup_before = -1

    @property
    def requested(self) -> bool:
        """Whether this process has a preemption notice."""
        return self._requested.is_set()

    def request(self) -> None:
        """Request preemption from within the process."""
        self._requested.set()

    def watch(self) -> None:
        """Start listening, until `stop`; call it from the main thread. An ignored SIGINT is still ignored.

        Raises:
            ValueError: another thread called it: Python lets only the main thread handle signals.
        """
        reading, writing = self._pipe = socket.socketpair()
        writing.setblocking(False)
        self._wakeup_before = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
        for number in _SIGNALS:
            if number is signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)
                signal.siginterrupt(number, False)  # else libraries' system calls fail with EINTR
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)  # an agent starts its ranks with blocked signals
        os.register_at_fork(after_in_child=partial(_forget_in_child, weakref.ref(self)))
        threading.Thread(target=self._listen, args=(reading,), name="notice", daemon=True).start()

    def stop(self) -> None:
        """Stop listening, and restore the handlers from before `watch`."""
        if self._deadline:
            self._deadline.cancel()
        if self._pipe is None:
            return
        _, writing = self._pipe
        self._pipe = None
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        current = signal.set_wakeup_fd(self._wakeup_before)
        if current != writing.fileno():  # an event loop has set one since
            signal.set_wakeup_fd(current)
        writing.shutdown(socket.SHUT_RDWR)  # ends the thread, although forked children have the socket open
        writing.close()

    def begin_steps(self) -> None:
        """From now on a notice is answered at the end of a step; until now it ends the process at once."""
        self._stepping = True

    def sleep(self, seconds: float) -> None:
        """Sleep, unless a notice comes first."""
        if seconds:
            self._requested.wait(seconds)

    def deliver(self, reason: str) -> None:
        """Set the notice with its reason, from any thread; after `exit_seconds` the process ends anyhow."""
        if not self._stepping:
            _exit_now(f"{reason} before the first step: nothing to save", EXIT_PREEMPTED)
        log_line(f"{reason}: saving at the end of this step, then exiting")
        self.request()
        self._deadline = threading.Timer(self._exit_seconds, self._give_up)
        self._deadline.daemon = True
        self._deadline.start()

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        """Send the signal to the thread, if an event loop has replaced the wakeup descriptor.

        With our descriptor `_listen` has received the signal before Python calls this.
        """
        if self._pipe is None:
            return
        own = self._pipe[1].fileno()
        other = signal.set_wakeup_fd(own, warn_on_full_buffer=False)
        if other != own:
            signal.set_wakeup_fd(other)
            self._pipe[1].send(bytes([number]))

    def _listen(self, reading: socket.socket) -> None:
        heard = 0
        with reading:
            while data := reading.recv(1):
                if self._wakeup_before != -1:
                    with suppress(OSError):
                        os.write(self._wakeup_before, data)
                if data[0] not in self._before:  # a signal for other handlers in this process
                    continue
                heard += 1
                if heard == 2:
                    text = "second signal: exiting at once; the last committed checkpoint remains"
                    _exit_now(text, EXIT_FAILED)
                self.deliver(signal.Signals(data[0]).name)

    def _give_up(self) -> None:
        faulthandler.dump_traceback(all_threads=True)
        _exit_now(
            f"no checkpoint within {self._exit_seconds:g} s of the notice: exiting without;"
            " the last committed one remains",
            EXIT_FAILED,
        )


def listen(exit_seconds: float, notices: str = "none") -> PreemptionNotice:
    """Start to listen for preemption notices, by signals and by a cloud's metadata service.

    Args:
        exit_seconds: from the request to the exit at the latest.
        notices: cloud whose metadata service is polled: none, aws, gcp, azure.

    Raises:
        ConfigError: the cloud has no such service.
    """
    notice, poll = PreemptionNotice(exit_seconds), None
    if notices != "none":
        from trainyard_train.elasticity.instance_metadata import Watch, metadata_of

        poll = Watch(metadata_of(notices), notice.deliver)
    if threading.current_thread() is threading.main_thread():
        notice.watch()
    else:
        log_line("no signal is received: Run was created in another thread than the main one; make it there")
    if poll:
        poll.start()
    return notice


def _forget_in_child(notice: weakref.ref[PreemptionNotice]) -> None:
    """Give a forked child, such as a DataLoader worker, separate signals: it shares the descriptor."""
    if (parent := notice()) is None or parent._pipe is None:
        return
    parent._pipe = None
    signal.set_wakeup_fd(-1)
    for number, handler in parent._before.items():
        signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _exit_now(text: str, code: int) -> None:
    log_line(text)
    os._exit(code)  # the main thread may be inside a collective that will never return
