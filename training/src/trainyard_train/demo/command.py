"""The command `demo`: trains a network twice, once with a kill and a resume, and compares the two."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from functools import partial
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen
from typing import Any, Final

from trainyard_train.contract import FILE, read_metrics, surviving_steps

PROGRAM: Final = "trainyard_train.demo.program"
"""Module that trains; its argument is the run's folder."""
_say: Final = partial(print, flush=True)
_TEXT: Final = """\
See a kill and an exact resume on this computer: no cluster, no GPU, no network.

A small network is trained twice. The second training is killed (SIGKILL) in the middle of an epoch, and
started again. It continues from its newest checkpoint; then each loss and all weights must equal those of
the undisturbed training, bit for bit. If not, the exit code is 1. Ctrl-C stops it; another demo begins anew.
The same takes a few lines in a loop of your own: those with `run` in the program that is named at the end."""


def add_commands(parser: Any) -> None:  # noqa: ANN401 (argparse gives its class no public name)
    """Add the command."""
    command = parser.add_parser(
        "demo",
        help="see a kill and an exact resume on this computer",
        description=_TEXT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    text = "where the runs `undisturbed` and `killed` are written, or replaced (trainyard-demo)"
    command.add_argument("--folder", type=Path, default=Path("trainyard-demo"), help=text)
    command.set_defaults(command=_demonstrate)


def _demonstrate(options: argparse.Namespace) -> int:
    runs = undisturbed, killed = options.folder / "undisturbed", options.folder / "killed"
    try:
        for earlier in runs:
            if (earlier / "checkpoints").is_dir():
                shutil.rmtree(earlier)
        _say(f"1. Train a small network: python -m {PROGRAM} {undisturbed}")
        if _train(undisturbed):
            return _failed("a training that fails", "exit code 0", "read its lines above")
        _say(f"2. Train it again, and kill it in the middle of an epoch: python -m {PROGRAM} {killed}")
        if not _train(killed, kill_at=len(_losses(undisturbed)) // 2):
            return _failed("a training that ended before the kill", "a kill", "start the demo again")
        _say("3. Start the killed one again, with the same command")
        if _train(killed):
            return _failed("a resume that fails", "exit code 0", "read its lines above")
        return _compare(undisturbed, killed)
    except KeyboardInterrupt:
        _say("stopped: nothing is left running")
        return 130


def _train(run_dir: Path, kill_at: int | None = None) -> int:
    """Train to the end, or kill it when it prints this step; return the exit code.

    Its session is its own: Ctrl-C reaches this process alone, which ends it.
    """
    command = [sys.executable, "-m", PROGRAM, str(run_dir)]
    variables = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    with Popen(
        command, stdout=PIPE, stderr=STDOUT, text=True, env=variables, start_new_session=True
    ) as process:
        assert process.stdout
        try:
            for line in process.stdout:
                _say(f"   {line.rstrip()}")
                step = re.search(r"step (\d+)", line)
                if kill_at and step and int(step[1]) >= kill_at:
                    process.kill()
                    _say("   SIGKILL")
                    break
        except BaseException:
            process.kill()
            process.wait()
            raise
    return process.returncode


def _compare(undisturbed: Path, killed: Path) -> int:
    """Show both runs side by side; returns 0 if one resumed and nothing differs."""
    from trainyard_train.checkpointing.saved import open_saved
    from trainyard_train.checkpointing.state import sha256_of
    from trainyard_train.checkpointing.stores import find_checkpoint

    resumed = [line["step"] for line in read_metrics(killed / FILE) if line["event"] == "resumed"]
    if not resumed:
        return _failed("a start from step 0", "a resume from a checkpoint", f"read {killed / FILE}")
    _say(f"   resumed after step {resumed[0]}\n\n   step  loss, undisturbed    killed and resumed")
    one, other = _losses(undisturbed), _losses(killed)
    for step in [step for step in one if step % 50 == 0 or step == len(one)]:
        _say(f"   {step:>4}  {one[step]!r:<19}  {other.get(step)!r}")
    weights = []
    for run in (undisturbed, killed):
        with open_saved(*find_checkpoint(str(run))) as saved:
            weights.append(sha256_of({path: saved.tensor(path) for path in saved.bare("model")}))
    _say("   sha256 of the weights:\n   {}  undisturbed\n   {}  killed and resumed".format(*weights))
    diff = f"python -m trainyard_train checkpoint diff {undisturbed} {killed}"
    if one != other or weights[0] != weights[1]:
        first = next((step for step in one if one[step] != other.get(step)), "none")
        return _failed(f"other weights, or losses (first: step {first})", "equal to the bit", diff)
    _say(f"\nEqual to the bit: {len(one)} losses, and the weights. Try next:")
    _say(f"   the checkpoints   python -m trainyard_train checkpoint ls {killed}")
    _say(f"   every tensor      {diff}")
    _say(f"   kill it yourself  python -m {PROGRAM} mine 500, and again")
    _say(f"   your own loop     the lines with `run` in {Path(__file__).with_name('program.py')}")
    return 0


def _losses(run_dir: Path) -> dict[int, float]:
    """Loss of each step that is in the final weights."""
    return {line["step"]: line["loss"] for line in surviving_steps(read_metrics(run_dir / FILE))}


def _failed(got: str, allowed: str, fix: str) -> int:
    sys.stderr.write(f"no exact resume\n  got:     {got}\n  allowed: {allowed}\n  fix:     {fix}\n")
    return 1
