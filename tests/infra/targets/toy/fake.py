from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rehearsal.fake import Fake, Stack, Started

HERE = Path(__file__).parent
ROOT = HERE.parents[3]


@contextmanager
def _start(_stack: Stack, folder: Path) -> Iterator[Started]:
    """The program of a rehearsal is a process of its own: it registers the target when it starts."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text("import tests.infra.targets.toy.registered\n")
    yield Started(variables={"PYTHONPATH": f"{folder}:{ROOT}"})


FAKE = Fake(_start, sells_machines=False)
