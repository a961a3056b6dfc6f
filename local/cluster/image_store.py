"""Gives each node's containerd its images: imports them once into a template store, and clones the template
for each node.

A temporary containerd imports the images, and its store becomes the template. A clone is a tree of hard links
where the filesystem is the same: layers and blobs are never changed in place, only the databases are copied.
So five nodes take the time and space of one, and a restored node has its images at once. Only the templates
that were used last are retained.
"""

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from local.cluster import containerd
from local.cluster.commands import program, run
from local.cluster.files import write
from local.cluster.images import Archive, import_missing
from local.cluster.machine import ClusterMachine, Daemon, InitSpec, Mount

NUM_RETAINED = 3
"""Number of template stores in the cache: enough for a few clusters or versions of the training code."""


@dataclass(frozen=True)
class ImageStore:
    """Template stores in a folder of the cache, each of which can be deleted at any time."""

    folder: Path

    def stock(self, store: Path, archives: Sequence[Archive], builder: ClusterMachine) -> None:
        """Make a node's store with these images; `builder` unpacks them if there is no template yet."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / "lock"):
            template = self._template(archives, builder)
            _clone(template, store)

    def _template(self, archives: Sequence[Archive], builder: ClusterMachine) -> Path:
        digest = hashlib.sha256("".join(sorted(archive.digest for archive in archives)).encode())
        template = self.folder / f"images-{digest.hexdigest()[:12]}"
        if not template.exists():
            partial = template.with_suffix(".new")
            shutil.rmtree(partial, ignore_errors=True)
            _unpack(partial, archives, builder)
            partial.rename(template)
        template.touch()
        self._prune()
        return template

    def _prune(self) -> None:
        newest = sorted(self.folder.glob("images-*"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in newest[NUM_RETAINED:]:
            shutil.rmtree(path, ignore_errors=True)


def _unpack(root: Path, archives: Sequence[Archive], builder: ClusterMachine) -> None:
    builder.stop()
    config = builder.folder / "containerd.toml"
    write(config, containerd.store_config(root))
    argv = (program("containerd"), f"--config={config}")
    daemon = Daemon("containerd", argv, str(builder.folder / "containerd.log"))
    builder.start(InitSpec((daemon,), sysctls={}, mounts=(Mount("tmpfs", "", "/run"),)))
    try:
        import_missing(builder, archives)
    finally:
        builder.stop()


def _clone(template: Path, store: Path) -> None:
    partial = store.with_name(f"{store.name}.new")
    shutil.rmtree(partial, ignore_errors=True)
    store.parent.mkdir(parents=True, exist_ok=True)
    links = ["--link"] if template.stat().st_dev == store.parent.stat().st_dev else []
    run(program("cp"), "--archive", *links, str(template), str(partial))
    for database in template.glob("*/*.db"):
        copy = partial / database.relative_to(template)
        copy.unlink()
        shutil.copy2(database, copy)
    partial.rename(store)
