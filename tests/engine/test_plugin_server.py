"""A plugin's server ends on SIGTERM at any moment, also right after it has printed its port, and with its
engine.
"""

import subprocess
import sys

from tests.processes import TIMEOUT_SECONDS

STOPPED_AT_A_LINE = """
import os, signal, sys, threading
from engine.plugin_server import PluginServer

remaining = int(sys.argv[1])

def end():
    os.kill(os.getpid(), signal.SIGTERM)

def trace(frame, event, argument):
    global remaining
    remaining -= event == "line"
    if remaining == 0:
        sys.settrace(None)
        end()
    return trace

class Port:
    def write(self, text):
        timer.start()
        sys.settrace(trace)

    def flush(self):
        sys._getframe().f_back.f_trace = trace

# SIGTERM once more, for a plugin that waits without executing a line of Python.
timer = threading.Timer(1, end)
timer.daemon = True
sys.stdout = Port()
PluginServer(on_stop=lambda: None).run()
"""
LINES = (2, 5, 8, 11, 14)
"""Numbers of lines after the port; from the 5th on, a `threading.Event` deadlocked with its `wait`."""


def test_a_plugin_whose_engine_died_before_it_knew_it_ends() -> None:
    """Its parent is another process then, but no one reads the port."""
    source = "from engine.plugin_server import PluginServer; PluginServer(on_stop=lambda: None).run()"
    plugin = subprocess.Popen(
        [sys.executable, "-c", source], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert plugin.stdout
    plugin.stdout.close()
    assert plugin.wait(TIMEOUT_SECONDS) == 1


def test_a_plugin_that_is_stopped_right_after_its_port_ends() -> None:
    plugins = [subprocess.Popen([sys.executable, "-c", STOPPED_AT_A_LINE, str(line)]) for line in LINES]
    assert [plugin.wait(TIMEOUT_SECONDS) for plugin in plugins] == [0] * len(plugins)
