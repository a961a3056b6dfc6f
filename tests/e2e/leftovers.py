"""Clusters of killed test runs, which the next run removes from the host, since it needs the same ranges."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from filelock import FileLock

from engine.paths import Paths
from engine.progress import Progress
from local.cluster import cgroups
from local.cluster.cluster import EmbeddedCluster
from local.cluster.config import ClusterConfig
from local.cluster.layout import Layout
from local.cluster.network import EmbeddedNetwork, run_folders
from local.cluster.processes import end
from local.toolchain import Toolchain, load_versions

LOCK = Path(tempfile.gettempdir()) / "trainyard-tests-e2e.lock"
SECONDS = 600.0
"""Timeout for the end of another run."""


@contextmanager
def exclusive(*clusters: str, progress: Progress) -> Iterator[None]:
    """Wait for other runs with clusters of these names, and remove what a killed one has left."""
    with FileLock(LOCK, timeout=SECONDS):
        remove(*clusters, progress=progress)
        yield


def remove(*clusters: str, progress: Progress, within: Path = Path("/")) -> None:
    """Take down each of these clusters, wherever its files are below `within`."""
    for run in run_folders().values():
        if run.parent.name in clusters and within in run.parents:
            _remove(run, progress)


def machines_below(run: Path) -> set[Path]:
    """Return the machine files of nodes that still run, although their folder may have been deleted."""
    found = (_last_argument(process) for process in psutil.process_iter())
    return {path for path in found if run in path.parents}


def _last_argument(process: psutil.Process) -> Path:
    try:
        return Path(process.cmdline()[-1])
    except (psutil.Error, IndexError):
        return Path()


def _remove(run: Path, progress: Progress) -> None:
    layout = Layout(run)
    if not layout.config.exists():  # the temporary folder has been cleaned
        for machine in machines_below(run):
            end(machine)
        EmbeddedNetwork(run.parent.name, layout.networks).remove()
        cgroups.remove(run.parent.name)
        shutil.rmtree(run.parent, ignore_errors=True)
        return
    config = ClusterConfig.parse(json.loads(layout.config.read_text()))
    paths = Paths(cache=Paths.from_environment().cache, state=run.parent.parent)
    toolchain = Toolchain(paths, load_versions(), progress)
    EmbeddedCluster(config, paths=paths, toolchain=toolchain, progress=progress).down(purge=True)
