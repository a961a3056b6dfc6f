"""A plugin ends when it is asked to, at any moment."""

from __future__ import annotations

import subprocess
import sys

from tests.processes import TIMEOUT_SECONDS

STOPPED_AT_A_LINE = """
import os, signal, sys, threading
from engine.plugin_server import PluginServer

left = int(sys.argv[1])

def end():
    os.kill(os.getpid(), signal.SIGTERM)

def trace(frame, event, argument):
    global left
    left -= event == "line"
    if left == 0:
        sys.settrace(None)
        end()
    return trace

class Port:
    def write(self, text):
        sys.settrace(trace)

    def flush(self):
        sys._getframe().f_back.f_trace = trace

sys.stdout = Port()
# The same word once more: a plugin that waits without a line of Python is asked while it does.
timer = threading.Timer(1, end)
timer.daemon = True
timer.start()
PluginServer(on_stop=lambda: None).run()
"""
LINES = (2, 5, 8, 11, 14)
"""Lines after the port; at those from 5 on, a `threading.Event` deadlocked with its `wait`."""


def test_a_plugin_that_is_stopped_right_after_its_port_ends() -> None:
    plugins = [subprocess.Popen([sys.executable, "-c", STOPPED_AT_A_LINE, str(line)]) for line in LINES]
    assert [plugin.wait(TIMEOUT_SECONDS) for plugin in plugins] == [0] * len(plugins)
