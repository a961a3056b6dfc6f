"""Google Cloud, known by its SDK and by the discovery documents of its API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rehearsal.fake import Fake, Stack, Started
from rehearsal.gcp.project import Answers, Project

PACKAGE = "gcp"


@contextmanager
def _start(stack: Stack, folder: Path) -> Iterator[Started]:
    place = stack["provider"]["project"], stack["provider"]["region"]
    yield Started({PACKAGE: Project(*place)}, Answers(folder / PACKAGE, *place))


FAKE = Fake(_start)
