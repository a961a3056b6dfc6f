"""Azure, known by its SDK."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rehearsal.azure.subscription import Answers, Subscription
from rehearsal.fake import Fake, Stack, Started

PACKAGE = "azure-native"


@contextmanager
def _start(stack: Stack, folder: Path) -> Iterator[Started]:
    subscription = stack["provider"]["subscription"]
    yield Started({PACKAGE: Subscription(subscription)}, Answers(folder / PACKAGE, subscription))


FAKE = Fake(_start)
