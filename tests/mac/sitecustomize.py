"""Simulates macOS in each Python process that has this folder on PYTHONPATH: removes what macOS lacks, names
another user, and hides from our code alone that the files and the name of the system are Linux's.
"""

import builtins
import io
import mmap
import multiprocessing
import os
import platform
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = str(Path(__file__).resolve().parents[2])
LACKING: dict[Any, str] = {
    os: "memfd_create pidfd_open sched_getaffinity sched_setaffinity O_DIRECT waitid getxattr setxattr",
    signal: "sigtimedwait sigwaitinfo pidfd_send_signal",
    mmap: "MADV_HUGEPAGE",
}
HIDDEN = ("/proc", "/sys", "/etc/os-release", "/usr/lib/os-release")
BETWEEN = ("pathlib.py", "platform.py", "sitecustomize.py")
NOT_OURS = ("/.venv/", "/.trainyard/", "local/toolchain/releases.py")  # whose downloads run here


def for_ours(on_mac: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is `on_mac` for our code, be it by way of the standard library, else `real`."""

    def chosen(*arguments: Any, **options: Any) -> Any:
        frame = sys._getframe(1)
        while frame.f_back and frame.f_code.co_filename.endswith(BETWEEN):
            frame = frame.f_back
        name = frame.f_code.co_filename
        is_ours = name.startswith(ROOT) and not any(part in name for part in NOT_OURS)
        return (on_mac if is_ours else real)(*arguments, **options)

    return chosen


def open_on_mac(file: Any, *arguments: Any, _open: Callable[..., Any] = io.open, **options: Any) -> Any:
    if str(file).startswith(HIDDEN):
        raise FileNotFoundError(2, "No such file or directory", str(file))
    return _open(file, *arguments, **options)


for module, names in LACKING.items():
    for lacking in names.split():
        if hasattr(module, lacking):
            delattr(module, lacking)
builtins.open = io.open = for_ours(open_on_mac, io.open)
os.geteuid = os.getuid = lambda: 12345
platform.system = for_ours(lambda: "Darwin", platform.system)
platform.machine = for_ours(lambda: "arm64", platform.machine)
multiprocessing.set_start_method("spawn")
