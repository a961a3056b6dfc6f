"""Starts a module of ours with our tree first on Python's path: PYTHONPATH may have another `infra`. No other
process has the tree on its path.

The entry point of the command `trainyard`; `python -P trainyard_start.py MODULE [ARGUMENT …]` starts others.
"""

import os
import sys

_FOLDER = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120 -- pathlib takes as long as all of this
_OF_WHEEL = f"{_FOLDER}/trainyard_tree"
ROOT = _OF_WHEEL if os.path.isdir(_OF_WHEEL) else _FOLDER  # noqa: PTH112 -- likewise


def put_tree_first() -> None:
    """Let imports find our packages before any others."""
    sys.path[:0] = [ROOT, f"{ROOT}/training/src"]


def start(module: str) -> None:
    """Run a module as the main one."""
    from runpy import run_module

    put_tree_first()
    run_module(module, run_name="__main__", alter_sys=True)


def main() -> None:
    """Run the command line."""
    put_tree_first()
    from trainyard.__main__ import main

    main()


if __name__ == "__main__":
    del sys.argv[0]
    start(sys.argv[0])
