"""Finds and runs short-lived programs of the operating system. A program that fails raises `TrainyardError`
with its output.
"""

import shutil
import subprocess

from infra.errors import GO_ON, Problem, TrainyardError

PROGRAM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT = {"PATH": PROGRAM_PATH, "HOME": "/root", "LANG": "C.UTF-8"}


def program(name: str) -> str:
    """Full path of a program of the operating system.

    Raises FileNotFoundError; `preflight` has looked for all of them before.
    """
    path = shutil.which(name, path=PROGRAM_PATH)
    if path is None:
        raise FileNotFoundError(f"no program {name} in {PROGRAM_PATH}")
    return path


def run(*argv: str, stdin: str = "", timeout_seconds: float = 600, max_status: int = 0) -> str:
    """Run a program and return its output; it is killed with this process, so that two never overlap.

    Raises TrainyardError when its exit status is above `max_status`, with its output, or at the timeout.
    """
    try:
        done = subprocess.run(
            [program("setpriv"), "--pdeathsig=KILL", "--", *argv],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            env=ENVIRONMENT,
            timeout=timeout_seconds,
            cwd="/",
        )
    except subprocess.TimeoutExpired:
        got, allowed = f"killed after {timeout_seconds:g} s", "an end within that time"
        raise TrainyardError([Problem(" ".join(argv), got, allowed, GO_ON)]) from None
    if not 0 <= done.returncode <= max_status:
        output = f"{done.stderr.strip()} (exit status {done.returncode})"
        fix = "see its output above; `trainyard down` and `up` recreate the cluster"
        raise TrainyardError([Problem(" ".join(argv), output, "exit status 0", fix)])
    return done.stdout
