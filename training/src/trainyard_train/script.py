"""`python -m trainyard_train run PROGRAM`: runs a Python program as all ranks of this node, under the agent.

PyTorch is imported once for all ranks, and a failed rank is restarted in place. If the program uses `Run`, a
restarted rank loads its checkpoint from this node's memory.
"""

from __future__ import annotations

import argparse
import atexit
import importlib
import os
import runpy
import signal
import sys
import threading
import time
import traceback
from collections.abc import MutableMapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from trainyard_train.checkpointing.config import FROM_SCRATCH
from trainyard_train.config_base import ConfigError
from trainyard_train.contract import EXIT_FAILED, EXIT_PEER_FAILED, EXIT_WRONG_CONFIG
from trainyard_train.elasticity import startup
from trainyard_train.elasticity.agent import Agent, exit_without_teardown, node_of, require_linux
from trainyard_train.elasticity.rank_status import RankStatus

_PERMANENT = (SyntaxError, ImportError, NameError)
"""Errors of the code alone, which a restart would repeat."""


def add_commands(parser: Any) -> None:  # noqa: ANN401 (argparse gives its class no public name)
    """The command that starts it."""
    text = "run a program as all ranks of this node, and restart failed ranks in place"
    command = parser.add_parser("run", help=text, description=text)
    command.add_argument("--nproc-per-node", metavar="N", help="ranks: a number, auto, gpu or cpu")
    command.add_argument(
        "--restarts",
        type=int,
        default=3,
        metavar="N",
        help="restarts in a row without a newer checkpoint (3)",
    )
    command.add_argument(
        "--preload",
        default="",
        metavar="MODULES",
        help="modules to import once for all ranks, such as transformers,datasets;"
        " none may touch a GPU when it is imported",
    )
    command.add_argument("--from-scratch", action="store_true", help=FROM_SCRATCH)
    command.add_argument("-m", "--module", action="store_true", help="run a module by its name")
    command.add_argument("program", help="a Python file, or with -m a module")
    command.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the program")
    command.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    started = time.time()
    problems = []
    if not options.module and not Path(options.program).is_file():
        problems.append(f"program: got {options.program}; allowed: a file, or a module's name with -m")
    if options.restarts < 0:
        problems.append(f"--restarts: got {options.restarts}; allowed: 0 or more")
    if problems:
        raise ConfigError(problems)
    if options.nproc_per_node:
        os.environ["PET_NPROC_PER_NODE"] = options.nproc_per_node
    node = node_of(os.environ)
    require_linux(node, *(["-m"] if options.module else []), options.program, *options.arguments)
    if options.from_scratch:
        os.environ["TRAINYARD_FROM_SCRATCH"] = "1"
    if os.environ.get("PET_NPROC_PER_NODE", "1") != "1":
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # as torchrun does; PyTorch reads it at its import
    startup.ask_for_huge_pages()
    from trainyard_train.run import TIMEOUTS

    work = partial(_as_rank, options.program, options.arguments, options.module)
    prepare = partial(_import, [name for name in options.preload.split(",") if name])
    return Agent(node, work, options.restarts, TIMEOUTS, prepare).run(started)


def _import(names: Sequence[str]) -> None:
    """Import what takes long."""
    startup.defer_compiler()
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ConfigError([f"--preload: got {name}, which cannot be imported: {error}"]) from None


def _as_rank(
    program: str, arguments: Sequence[str], module: bool, _started: float, _rendezvous_seconds: float
) -> int:
    """Be the program; returns its exit code."""
    _be_a_rank(os.environ)
    sys.argv = [program, *arguments]
    try:
        if module:
            sys.path.insert(0, str(Path.cwd()))
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(program).resolve().parent))
            runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        code = _code_of(end)
    except BaseException as error:
        traceback.print_exc()
        if "torch.distributed" in sys.modules:
            from trainyard_train.parallelism.mesh import is_peer_failure

            if is_peer_failure(error):
                exit_without_teardown(EXIT_PEER_FAILED)
        code = EXIT_WRONG_CONFIG if isinstance(error, _PERMANENT) else EXIT_FAILED
        RankStatus.from_environment().note_exception(error)
    else:
        code = 0
    # Run the libraries' exit handlers, which a forked process skips.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    return code


def _be_a_rank(environment: MutableMapping[str, str]) -> None:
    """Log as torchrun does, and reset signals for the program; `Run` handles them itself.

    The agents' store outlives a round of ranks, with what failed ones wrote to it. So rank 0 has a new one
    for the process group of each round, as without an agent, beside it.
    """
    if environment.pop("TORCHELASTIC_USE_AGENT_STORE", None):
        environment["MASTER_PORT"] = str(int(environment["MASTER_PORT"]) + 1)
    ranks = int(environment["LOCAL_WORLD_SIZE"])
    environment.update(
        {
            "GROUP_RANK": str(int(environment["RANK"]) // ranks),
            "GROUP_WORLD_SIZE": str(int(environment["WORLD_SIZE"]) // ranks),
            "ROLE_NAME": "default",
            "ROLE_RANK": environment["RANK"],
            "ROLE_WORLD_SIZE": environment["WORLD_SIZE"],
            "TORCHELASTIC_RUN_ID": environment.get("TRAINYARD_JOB", "none"),
        }
    )
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})


def _code_of(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    sys.stderr.write(f"{end.code}\n")
    return EXIT_FAILED
