"""Benchmark: time to preview the local stack, against a bare Pulumi program that registers the same
resources.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.arena import arena, quiet
from benchmarks.bare import check_same, engine, engine_of_repository, write_bare
from benchmarks.figures import Figure, Repeats, alternating

ROUNDS = 3


def measure() -> list[Figure]:
    """Time the engine's preview of both, after one of each that is not counted."""
    with arena() as bench, tempfile.TemporaryDirectory() as folder:
        session = bench.session
        session.toolchain.ensure()
        ours = engine_of_repository(session)
        project = write_bare(Path(folder) / "bare", "local", session.stack)
        bare = engine(project, session.toolchain.environment())
        check_same(ours.preview("local", quiet()), bare.preview("local", quiet()))
        taken, against = alternating(
            lambda: ours.preview("local", quiet()).seconds,
            lambda: bare.preview("local", quiet()).seconds,
            ROUNDS,
        )
    return [
        Figure(
            "preview of the local stack",
            Repeats("trainyard", "s", taken),
            at_most=1.15,
            peer=Repeats("bare program", "s", against),
        )
    ]
