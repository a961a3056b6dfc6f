"""Paths of the files of one embedded cluster, below its run folder."""

from dataclasses import dataclass
from pathlib import Path

VERSION = "1"
"""Version of the layout; a run folder of another version must be removed by the release that made it."""


@dataclass(frozen=True)
class Layout:
    """Paths in the run folder of a cluster."""

    run: Path

    @property
    def version(self) -> Path:
        return self.run / "version"

    @property
    def config(self) -> Path:
        """The config of the last `up`."""
        return self.run / "cluster.json"

    @property
    def indexes(self) -> Path:
        """Index of each node, from which its addresses follow."""
        return self.run / "indexes.json"

    @property
    def pki(self) -> Path:
        return self.run / "pki"

    @property
    def networks(self) -> Path:
        return self.run / "netns"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's; 0600."""
        return self.run / "admin.kubeconfig"

    @property
    def events(self) -> Path:
        """Preemptions and returns, one JSON object per line."""
        return self.run / "events.jsonl"

    @property
    def audit(self) -> Path:
        """The API server's audit log (0700); it outlives the run, as the data do."""
        return self.run.parent / "audit"

    @property
    def control(self) -> Path:
        return self.run / "control"

    @property
    def unpacking(self) -> Path:
        """The machine that unpacks images, while there are some to unpack."""
        return self.run / "unpacking"

    @property
    def nodes(self) -> Path:
        return self.run / "nodes"

    def node(self, name: str) -> Path:
        return self.nodes / name


def gate(folder: Path) -> Path:
    """A file in the folder of a machine, for which those of its daemons wait that need the API.

    It exists once the API server serves and the machine is registered.
    """
    return folder / "gate"
