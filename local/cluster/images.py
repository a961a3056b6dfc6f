"""Reads OCI archives, and imports into a machine's containerd the images that it lacks, with no registry."""

import json
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from local.cluster.commands import program
from local.cluster.containerd import SOCKET
from local.cluster.machine import ClusterMachine

_NAME_ANNOTATIONS = ("io.containerd.image.name", "org.opencontainers.image.ref.name")


@dataclass(frozen=True)
class Archive:
    """An OCI archive with one image."""

    path: Path
    names: tuple[str, ...]
    """References of the image by which pods name it."""
    digest: str


@cache
def read_archive(path: Path) -> Archive:
    """Read names and digest of the image in an archive.

    Raises ValueError when its index gives the image no name.
    """
    with tarfile.open(path) as tar:
        file = tar.extractfile("index.json")
        index = json.loads(file.read()) if file else {}
    manifests = index.get("manifests", [])
    found = [manifest.get("annotations", {}) for manifest in manifests]
    names = tuple(notes[key] for notes in found for key in _NAME_ANNOTATIONS if key in notes)
    if not names:
        raise ValueError(f"{path} names no image in its index.json")
    return Archive(path, names, manifests[0]["digest"])


def import_missing(machine: ClusterMachine, archives: Iterable[Archive]) -> None:
    """Import those that the node lacks."""
    present = _present(machine)
    for archive in archives:
        if any(present.get(name) != archive.digest for name in archive.names):
            _ctr(machine, "image", "import", str(archive.path))


def _present(machine: ClusterMachine) -> dict[str, str]:
    """Name → digest of the images on a node; ctr prints a table: REF, TYPE, DIGEST, …."""
    rows = [line.split() for line in _ctr(machine, "image", "ls").splitlines()[1:]]
    return {row[0]: row[2] for row in rows if len(row) > 2}


def _ctr(machine: ClusterMachine, *arguments: str) -> str:
    command = (program("ctr"), f"--address={SOCKET}", "--namespace=k8s.io", *arguments)
    return machine.run(*command, needs=SOCKET)
