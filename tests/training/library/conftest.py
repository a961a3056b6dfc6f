"""Close a run that a test has left open, since a process can have one run at a time."""

from collections.abc import Iterator

import pytest

from trainyard_train import Run


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    if Run._open:
        Run._open.close()
