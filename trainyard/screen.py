"""The first screen: all commands by what they are for. Typer is not needed for it, nor any command."""

import os
import sys
import textwrap
from collections.abc import Iterator, Mapping

from engine.paths import Paths

SCREEN = """\
Usage: trainyard COMMAND …             options of one: trainyard COMMAND --help

Your jobs                              Your cluster
  run      this folder, or a job.yaml    new      a project from a template
  jobs     all, and why they wait        preview  what `up` would change
  logs     of all nodes and attempts     up       create or update it
  shell    into a rank's pod             down     drain and delete it
  pause, resume, cancel                  status   nodes and jobs
                                         ui       the same as a page

Answers                                Help
  cost     of a stack, by pool           doctor   what host and account lack
                                         explain  a key: explain pools.zones

More:  trainyard job | stack | team | catalog | local

Exit codes: 0 done · 1 started and failed · 2 wrong input, nothing started
  3 the host lacks something, nothing started · 4 the job failed
  130 interrupted, run again to continue
"""


def here(paths: Paths, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield what this folder and this host have, and what to type next."""
    stacks, context = paths.stack_names(), environ.get("TRAINYARD_CONTEXT")
    running = [name for name in stacks if os.access(paths.cluster_run(name) / "cluster.json", os.F_OK)]
    if context:
        yield f"Context   {context}"
    shown = ", ".join(f"{name} (on this host)" if name in running else name for name in stacks)
    shown = f"Stacks    {shown or 'none'} in {os.path.relpath(paths.stacks)}/"
    yield textwrap.fill(shown, 80, subsequent_indent=" " * 10)
    if context:
        yield "Next      trainyard run --gpus 8 -- python train.py"
    elif running:
        yield f"Next      trainyard status -s {running[0]}"
    elif stacks:
        name = environ.get("TRAINYARD_STACK") or paths.usual_stack()
        yield f"Next      trainyard preview -s {name}, then trainyard up -s {name}"
    else:
        yield "Next      trainyard new local, or trainyard team login FILE"


def show(words: list[str]) -> None:
    """Print the screen; without any word also what is here."""
    lines = [] if words else [*here(Paths.from_environment(), os.environ), ""]
    sys.stdout.write("\n".join([*lines, SCREEN]))
