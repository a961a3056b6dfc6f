"""Benchmark: time to preview the local stack, against a bare Pulumi program that registers the same
resources.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.arena import arena, quiet
from benchmarks.bare import check_same, engine, write_bare
from benchmarks.figures import Figure, Repeats, alternating
from engine.engine import Engine
from infra.common.artifacts import ROOT

ROUNDS = 3


def measure() -> list[Figure]:
    """Time the engine's preview of both, after one of each that is not counted."""
    with arena() as bench, tempfile.TemporaryDirectory() as folder:
        session = bench.session
        session.toolchain.ensure()
        environment = session.toolchain.environment()
        paths = replace(session.paths, repository=ROOT)
        paths.engine.mkdir(parents=True, exist_ok=True)
        home = str(paths.engine / "home")
        ours = Engine(
            paths, {**environment, "PULUMI_BACKEND_URL": paths.engine.as_uri(), "PULUMI_HOME": home}
        )
        bare = engine(write_bare(Path(folder) / "bare", "local", session.stack), environment)
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
