"""`make bench`: runs all benchmarks but `gpu`, or the named ones; prints and stores their figures, updates
the docs, and exits with 1 if a target is missed.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.figures import save, show, update_pages
from engine.paths import Paths

BENCHES = {
    "startup": "from `trainyard up` to the first optimizer step, against bare helm and kubectl",
    "again": "a second `trainyard up` with nothing to change",
    "policies": "preview of an AWS stack with 2,000 resources under all policies, against none",
    "buckets": "the same of a plain program of buckets, and of packs without rules",
    "admission": "admission of a pod under the policies of team namespaces, against none",
    "preview": "preview of the local stack, against a bare Pulumi program with the same resources",
    "package": "preview of the local stack through the component package, against our program",
    "pools": "preview of stacks with 50, 100 and 200 pools, against a bare program with as many resources",
    "recovery": "from a node's death to the first new step, with and without notice",
    "throughput": "time per training sample, against bare torchrun and DDP, Lightning and Accelerate",
    "checkpoints": "what a checkpoint costs the training, against dcp.async_save",
    "resharding": "peak memory and seconds of a load under another layout, against dcp.load",
    "restart": "from a killed worker to the first new step, against torchrun and NVRx",
    "lost": "bytes read and steps repeated after a loss, against torch.save and dcp under torchrun",
    "gpu": "all that needs a GPU, in 15 minutes: killed ranks, NCCL's watchdog, a GPT, a Llama, large states",
    "allreduce": "all-reduces between two pods of a team, against the same without its NetworkPolicy",
    "folder": "from `trainyard run` of 5,000 files to the first step, against kubectl and code baked in",
    "idle": "CPU and memory of the idle cluster",
}
ASKED_FOR = {"gpu"}
"""Benchmarks that run only when their name is given."""


def main(
    names: Annotated[
        list[str] | None, typer.Argument(help="Which; left out: all but gpu. " + "; ".join(BENCHES))
    ] = None,
) -> None:
    """Run benchmarks and print their figures; the exit code is 1 if a target is missed."""
    console = Console()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # users' Python caches its bytecode
    os.environ["PATH"] = os.pathsep.join((str(Paths.from_environment().bin), os.environ["PATH"]))
    missed = False
    for name in names or [name for name in BENCHES if name not in ASKED_FOR]:
        console.print(f"[bold]{name}[/]: {BENCHES[name]}")
        figures = importlib.import_module(f"benchmarks.{name}").measure()
        show(console, figures)
        save(name, figures)
        update_pages()
        missed |= not all(figure.holds for figure in figures)
    sys.exit(missed)


if __name__ == "__main__":
    typer.run(main)
