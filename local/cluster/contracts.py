"""The interface by which the cluster asks for artifacts: binaries and images by name."""

from pathlib import Path
from typing import Protocol


class ArtifactFinder(Protocol):
    """Finds pinned artifacts; `local.toolchain.Toolchain` is one."""

    def path(self, name: str) -> Path:
        """Path of `binary/kubelet`, `image/training` and the like.

        Raises KeyError for an unknown name, HostError for what does not exist.
        """
