"""The check for FUSE in the kernel, without which the tests on NFS are skipped instead of failing."""

import os
from pathlib import Path

import pytest

from tests.training.checkpointing.nfs import kernel_has_fuse

MODULES = f"lib/modules/{os.uname().release}"


@pytest.mark.parametrize(
    ("file", "text", "has"),
    [
        ("proc/filesystems", "nodev\tproc\n\tfuseblk\nnodev\tfuse\n", True),
        ("proc/filesystems", "nodev\tproc\n\text4\n", False),
        (f"{MODULES}/modules.builtin", "kernel/fs/fuse/fuse.ko\n", True),
        (f"{MODULES}/modules.dep", "kernel/fs/fuse/cuse.ko.xz: kernel/fs/fuse/fuse.ko.xz\n", True),
        (f"{MODULES}/modules.dep", "kernel/fs/nfs/nfs.ko.xz: kernel/fs/lockd/lockd.ko.xz\n", False),
    ],
)
def test_a_kernel_has_fuse_built_in_loaded_or_as_a_module(
    file: str, text: str, has: bool, tmp_path: Path
) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert kernel_has_fuse(tmp_path) == has
