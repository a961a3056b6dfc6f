"""The local target's fake for rehearsals (`FAKE`): gives outputs of an embedded cluster and starts none."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rehearsal.cloud import Own
from rehearsal.fake import Fake, RunningFake, Stack
from rehearsal.leaks import SECRET
from rehearsal.tables import table

OUTPUTS: Mapping[str, Mapping[str, Any]] = {
    "trainyard:local:EmbeddedCluster": {
        "endpoint": "https://rehearsal.invalid:6443",
        "caCertificate": "rehearsal",
        "kubeconfig": f"{SECRET}-kubeconfig",
        "objectStoreAccessKey": f"{SECRET}-access-key",
        "objectStoreSecretKey": f"{SECRET}-secret-key",
    }
}
"""Type → outputs that its provider adds to its inputs."""


@contextmanager
def _start(_stack: Stack, _folder: Path) -> Iterator[RunningFake]:
    yield RunningFake({"trainyard": Own(OUTPUTS, table(__package__, "replacements"))})


FAKE = Fake(_start, sells_machines=False)
