from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from rehearsal.cloud import Cloud, CreatedResource, RequestedResource
from rehearsal.fake import Fake, RunningFake, Stack

HERE = Path(__file__).parent
ROOT = HERE.parents[3]


class ToyCloud(Cloud):
    """A fake cloud of boxes, each with a label."""

    def __init__(self) -> None:
        super().__init__()
        self.boxes: dict[str, str] = {}

    def create(self, resource: RequestedResource) -> CreatedResource:
        made = self.boxes[resource.inputs["label"]] = f"box-{uuid4().hex[:8]}"
        return CreatedResource(made, {})

    def exists(self, resource: RequestedResource) -> bool:
        return resource.id in self.boxes.values()

    def delete(self, resource: RequestedResource) -> None:
        self.boxes.pop(resource.inputs["label"], None)


@contextmanager
def _start(_stack: Stack, folder: Path) -> Iterator[RunningFake]:
    """Start the fake. A rehearsal's program is a separate process, and registers the target at its start."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text("import tests.infra.targets.toy.registered\n")
    toys = ToyCloud()
    yield RunningFake({"toys": toys}, toys.boxes.get, {"PYTHONPATH": f"{folder}:{ROOT}"})


FAKE = Fake(_start, sells_machines=False)
