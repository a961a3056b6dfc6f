"""Folders with a maximum size: each is the mount point of an ext4 filesystem in a sparse file, attached by a
loop device.

The file lies beside the folder (`object-store.ext4` for `object-store`), takes as much disk space as was
written, and outlives the cluster like its other data. Where no filesystem can be made, the folder has no
limit, and the caller gets the reason.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from infra.errors import TrainyardError
from local.cluster.commands import program, run
from local.cluster.processes import wait_until

GIB = 2**30
RELEASE_SECONDS = 10.0
"""How long the mounts of processes that have just ended may stand: the kernel removes them afterwards."""
# Inode tables are zeroed neither now nor in the background: the file begins with zeros.
MAKE_OPTIONS = ("-q", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard")
MOUNT_OPTIONS = "loop,nodev,nosuid,noexec,noinit_itable"

_CORRECTED = 1
"""Exit status of e2fsck after a successful repair, such as of a deleted `lost+found`."""


@dataclass(frozen=True)
class BoundedVolume:
    """One folder and its size; every method can be repeated."""

    folder: Path
    size_gib: int

    @property
    def image(self) -> Path:
        """The file in which the filesystem lies."""
        return self.folder.with_name(f"{self.folder.name}.ext4")

    def attach(self, *, nodes_run: bool) -> str:
        """Mount it, made or grown where it has to be; return why its size isn't enforced, empty if it is.

        Raises TrainyardError when an existing filesystem cannot be mounted: without it the folder
        would look empty.
        """
        if self.folder.is_mount():
            return self._difference()
        if self.image.exists():
            self._grow()
            self._mount()
            return self._difference()
        if nodes_run:  # their mount namespaces would still have the folder beneath
            return "its nodes are running: take the cluster down and up once"
        if self.folder.exists() and any(self.folder.iterdir()):
            return "the folder has files of an earlier release: it is not changed"
        return self._begin()

    def detach(self) -> None:
        """Unmount it, and wait until the nodes' mounts, which keep the loop device, have gone as well."""
        if self.folder.is_mount():
            run(program("umount"), str(self.folder))
            self._wait_until_released()

    def _begin(self) -> str:
        staged = self.image.with_suffix(".new")
        try:
            staged.unlink(missing_ok=True)
            with os.fdopen(os.open(staged, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                file.truncate(self.size_gib * GIB)
            run(program("mkfs.ext4"), *MAKE_OPTIONS, str(staged))
            staged.rename(self.image)
            self._mount()
        except FileNotFoundError as error:
            staged.unlink(missing_ok=True)
            return f"{error} (apt-get install e2fsprogs)"
        except TrainyardError as error:  # a container without loop devices
            staged.unlink(missing_ok=True)
            self.image.unlink(missing_ok=True)
            return error.problems[0].got
        return ""

    def _mount(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        run(program("mount"), "-o", MOUNT_OPTIONS, str(self.image), str(self.folder))
        with suppress(OSError):  # the object store would serve it as a bucket
            (self.folder / "lost+found").rmdir()

    def _grow(self) -> None:
        """Give the file more, while it is mounted nowhere: a kernel resizes only for CAP_SYS_RESOURCE.

        A mount in any namespace has the filesystem in memory, and would write its old size over the new one.
        """
        size = self.size_gib * GIB
        if self.image.stat().st_size < size and self._wait_until_released():
            run(program("e2fsck"), "-f", "-p", str(self.image), max_status=_CORRECTED)
            os.truncate(self.image, size)
            run(program("resize2fs"), str(self.image))

    def _wait_until_released(self) -> bool:
        """Wait until no loop device has the file; False where one has it after `RELEASE_SECONDS`."""
        devices = (program("losetup"), "--associated", str(self.image), "--noheadings", "--output=NAME")
        return wait_until(lambda: not run(*devices), seconds=RELEASE_SECONDS)

    def _difference(self) -> str:
        has = self.image.stat().st_size // GIB
        if has < self.size_gib:
            return f"it has {has} GiB, and grows when the cluster is taken down and up"
        return f"it has {has} GiB, and does not shrink" if has > self.size_gib else ""
