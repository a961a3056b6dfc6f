"""CoreWeave, known by its SDK; its node pools are objects of the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rehearsal.cloud import Kubernetes, Typed
from rehearsal.fake import Fake, Stack, Started
from rehearsal.tables import table

OUTPUTS: Mapping[str, Mapping[str, Any]] = {
    "coreweave:index/cksCluster:CksCluster": {"apiServerEndpoint": "rehearsal.k8s.invalid"},
}
"""Type → what CoreWeave would add to its inputs."""


@contextmanager
def _start(_stack: Stack, _folder: Path) -> Iterator[Started]:
    rules = table(__package__, "replacements")
    yield Started({"coreweave": Typed(OUTPUTS, rules), "kubernetes": Kubernetes(rules)})


FAKE = Fake(_start)
