"""Checks whether an image contains the libraries and files that a fabric needs.

It is pure: it gets the image's contents and opens nothing. A library counts as present only where the dynamic
loader would find it: in one of the loader's default folders, in a folder of LD_LIBRARY_PATH, or as a path
that /etc/ld.so.cache names (ld.so(8)).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property

from catalog.fabric_lint import Fault
from catalog.schema import Fabric, ImageFile

LOADER_CACHE = "etc/ld.so.cache"
_TRIPLETS = ("x86_64-linux-gnu", "aarch64-linux-gnu")
_FOLDERS = ("lib64", "usr/lib64", "lib", "usr/lib")
TRUSTED = (*(f"{above}/{triplet}" for above in ("lib", "usr/lib") for triplet in _TRIPLETS), *_FOLDERS)
"""Folders that the dynamic loader searches by default, on Debian and on Red Hat."""
_NCCL = re.compile(r"(?:nvidia_nccl_cu\d+-([\d.]+)\.dist-info/METADATA|libnccl\.so\.(\d+\.\d+\.\d+))$")
"""Files that tell the version of NCCL: of PyTorch's wheels, and of the system's library."""
_MOST_LINKS = 40
"""Maximum number of links in the resolution of one path, as in Linux (path_resolution(7))."""


@dataclass(frozen=True)
class ImageContents:
    """Files, links and environment of an image; paths have no leading slash."""

    files: frozenset[str]
    links: Mapping[str, str] = field(default_factory=dict)
    """Symbolic link → its target."""
    cached: frozenset[str] = frozenset()
    """Libraries that the loader's cache lists."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the image's containers."""

    @cached_property
    def _names(self) -> Mapping[str, tuple[str, ...]]:
        """Folder → names of its entries."""
        found: dict[str, list[str]] = {}
        for path in (*self.files, *self.links):
            folder, _, name = path.rpartition("/")
            found.setdefault(folder, []).append(name)
        return {folder: tuple(sorted(names)) for folder, names in found.items()}

    def resolve(self, path: str) -> str:
        """Follow all links of a path; empty where they never end."""
        rest, done, followed = path.split("/"), list[str](), 0
        while rest:
            part = rest.pop(0)
            if part in ("", "."):
                continue
            if part == "..":
                done = done[:-1]
                continue
            target = self.links.get("/".join([*done, part]))
            if target is None:
                done.append(part)
                continue
            followed += 1
            if followed > _MOST_LINKS:
                return ""
            rest = target.split("/") + rest
            done = [] if target.startswith("/") else done
        return "/".join(done)

    def matches(self, pattern: str) -> list[str]:
        """Return the real files of a folder, given as `folder/pattern`."""
        folder, _, name = pattern.strip("/").rpartition("/")
        folder = self.resolve(folder)
        found = [
            f"{folder}/{each}".lstrip("/") for each in self._names.get(folder, ()) if fnmatchcase(each, name)
        ]
        return [path for path in found if self.resolve(path) in self.files]

    def anywhere(self, pattern: str) -> list[str]:
        """Return where a file of that name is, wherever that may be."""
        name = pattern.rpartition("/")[2]
        return sorted(path for path in self.files if fnmatchcase(path.rpartition("/")[2], name))


def faults(contents: ImageContents, fabric: Fabric) -> Iterator[Fault]:
    """Name each file of the fabric's that ranks in this image would miss."""
    for wanted in fabric.image_files:
        if not _has(contents, wanted.file, fabric):
            yield _fault(contents, wanted, fabric)
    found = [
        version for path in contents.files for groups in _NCCL.findall(path) for version in groups if version
    ]
    if fabric.nccl and fabric.nccl not in found:
        got = f"NCCL {', '.join(sorted({*found}))}" if found else "no NCCL"
        fix = f"install nvidia-nccl-cu12 or -cu13 {fabric.nccl} in the image"
        allowed = f"NCCL {fabric.nccl}, for which the plugin on nodes of {fabric.name} is qualified"
        yield Fault(("libnccl.so.2",), got, allowed, fix)


def _has(contents: ImageContents, file: str, fabric: Fabric) -> bool:
    if file.startswith("/"):
        return bool(contents.matches(file))
    # The runtime's own variables replace the image's.
    variables = {**contents.environment, **fabric.environment}
    paths = [each for each in variables.get("LD_LIBRARY_PATH", "").split(":") if each]
    if any(contents.matches(f"{folder}/{file}") for folder in (*paths, *TRUSTED)):
        return True
    cached = {path.rpartition("/")[0] for path in contents.cached}
    if "/" in file:  # a library's plugin, in the same folder as the library
        return any(contents.matches(f"{folder}/{file}") for folder in cached)
    named = [path for path in contents.cached if path.rpartition("/")[2] == file]
    return any(contents.resolve(path) in contents.files for path in named)


def _fault(contents: ImageContents, wanted: ImageFile, fabric: Fabric) -> Fault:
    elsewhere = contents.anywhere(wanted.file)
    if elsewhere and not wanted.file.startswith("/"):
        got = f"{wanted.file} at /{elsewhere[0]}, where the loader does not look"
        fix = "name its folder in /etc/ld.so.conf.d and run ldconfig in the image, or in its LD_LIBRARY_PATH"
    else:
        got = f"no {wanted.file}"
        fix = f"install {wanted.package} in the image; training/images has it"
    return Fault(
        (wanted.file,), got, f"{wanted.file}, of {wanted.package}: ranks on {fabric.name} load it", fix
    )
