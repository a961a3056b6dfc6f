from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from rehearsal.cloud import Anything, Made, RequestedResource
from rehearsal.fake import Fake, RunningFake, Stack

HERE = Path(__file__).parent
ROOT = HERE.parents[3]


class Toys(Anything):
    """A cloud of boxes, each known by its label."""

    def __init__(self) -> None:
        super().__init__()
        self.boxes: dict[str, str] = {}

    def create(self, resource: RequestedResource) -> Made:
        made = self.boxes[resource.inputs["label"]] = f"box-{uuid4().hex[:8]}"
        return Made(made, {})

    def exists(self, resource: RequestedResource) -> bool:
        return resource.id in self.boxes.values()

    def delete(self, resource: RequestedResource) -> None:
        self.boxes.pop(resource.inputs["label"], None)


@contextmanager
def _start(_stack: Stack, folder: Path) -> Iterator[RunningFake]:
    """The program of a rehearsal is a separate process: it registers the target when it starts."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text("import tests.infra.targets.toy.registered\n")
    toys = Toys()
    yield RunningFake({"toys": toys}, toys.boxes.get, {"PYTHONPATH": f"{folder}:{ROOT}"})


FAKE = Fake(_start, sells_machines=False)
