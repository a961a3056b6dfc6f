"""An NFS client in user space: libnfs implements the protocol, and FUSE mounts it as a folder.

    python -m tests.training.checkpointing.nfs_client VERSION EXPORT FOLDER

It gives the guarantees of the kernel's client: a write is sent as unstable; `fsync`, and the close of a
written file, are a COMMIT. It waits for an unreachable server, as a mount with `hard` does.
"""

import ctypes
import errno
import os
import stat
import sys
from typing import Any, Final

from mfusepy import FUSE, Operations

_CHUNK: Final = {3: 1 << 20, 4: 1 << 11}
"""Bytes of one write: more does not fit libnfs's requests."""


class _Stat(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in (
            *("dev", "ino", "mode", "nlink", "uid", "gid", "rdev", "size", "blksize", "blocks"),
            *("atime", "mtime", "ctime", "atime_nsec", "mtime_nsec", "ctime_nsec", "used"),
        )
    )


class _Entry(ctypes.Structure):
    """The beginning of libnfs's `struct nfsdirent`."""

    _fields_ = (("next", ctypes.c_void_p), ("name", ctypes.c_char_p))


class Nfs:
    """A mounted export; each method calls a function of libnfs, whose error becomes an OSError."""

    def __init__(self, version: int, server: str, export: str) -> None:
        self._library = _library()
        self._context = ctypes.c_void_p(self._library.nfs_init_context())
        if self._library.nfs_set_version(self._context, version):
            raise OSError(errno.EPROTONOSUPPORT, f"libnfs knows no version {version}")
        self._library.nfs_set_dircache(self._context, 0)  # files of other clients are visible at once
        self._library.nfs_set_autoreconnect(self._context, -1)
        self.call("mount", server.encode(), export.encode())

    def call(self, name: str, *arguments: object) -> int:
        """Call a function; return its result. Raises OSError with the server's message."""
        result = int(getattr(self._library, f"nfs_{name}")(self._context, *arguments))
        if result < 0:
            output = (self._library.nfs_get_error(self._context) or b"").decode()
            raise OSError(-result, f"{name}: {output}")
        return result

    def stat(self, path: str) -> dict[str, int]:
        """Return the attributes by their names in `os.stat`."""
        found = _Stat()
        self.call("lstat64", path.encode(), ctypes.byref(found))
        plain = {name: getattr(found, name) for name in ("ino", "mode", "nlink", "uid", "gid", "size")}
        nanoseconds = {
            name: getattr(found, name) * 10**9 + getattr(found, f"{name}_nsec")
            for name in ("atime", "mtime", "ctime")
        }
        return {f"st_{name}": value for name, value in (plain | nanoseconds).items()}

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, with `.` and `..`."""
        folder = ctypes.c_void_p()
        self.call("opendir", path.encode(), ctypes.byref(folder))
        found = []
        while entry := self._library.nfs_readdir(self._context, folder):
            found.append(entry.contents.name.decode())
        self._library.nfs_closedir(self._context, folder)
        return found


class NfsOperations(Operations):  # type: ignore[misc]
    """The operations of a FUSE filesystem, which the NFS server carries out."""

    use_ns = True
    """Times are whole nanoseconds."""

    def __init__(self, nfs: Nfs, chunk: int) -> None:
        self._nfs = nfs
        self._chunk = chunk

    def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
        return self._nfs.stat(path)

    def readdir(self, path: str, fh: int) -> list[str]:
        return self._nfs.names(path)

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        return self._open(path, os.O_CREAT | os.O_RDWR, stat.S_IMODE(mode))

    def open(self, path: str, flags: int) -> int:
        return self._open(path, flags & (os.O_ACCMODE | os.O_TRUNC), 0)

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        data = ctypes.create_string_buffer(size)
        length = self._nfs.call("pread", fh, offset, size, data)
        return data.raw[:length]

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        for start in range(0, len(data), self._chunk):
            part = data[start : start + self._chunk]
            while part:
                written = self._nfs.call("pwrite", fh, offset + start, len(part), part)
                start, part = start + written, part[written:]
        return len(data)

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        return self._nfs.call("fsync", fh)

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        return 0  # a server makes a name durable before it confirms it (RFC 1813, 4.8)

    def release(self, path: str, fh: int) -> int:
        return self._nfs.call("close", fh)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        return self._nfs.call("truncate", path.encode(), length)

    def rename(self, old: str, new: str) -> int:
        return self._nfs.call("rename", old.encode(), new.encode())

    def mkdir(self, path: str, mode: int) -> int:
        return self._nfs.call("mkdir2", path.encode(), mode)

    def rmdir(self, path: str) -> int:
        return self._nfs.call("rmdir", path.encode())

    def unlink(self, path: str) -> int:
        return self._nfs.call("unlink", path.encode())

    def chmod(self, path: str, mode: int) -> int:
        return self._nfs.call("chmod", path.encode(), stat.S_IMODE(mode))

    def _open(self, path: str, flags: int, mode: int) -> int:
        handle = ctypes.c_void_p()
        self._nfs.call("open2", path.encode(), flags, mode, ctypes.byref(handle))
        return int(handle.value or 0)


def _library() -> ctypes.CDLL:
    """Load libnfs, whose version number depends on the distribution's release."""
    from ctypes.util import find_library

    library = ctypes.CDLL(find_library("nfs") or "libnfs.so")
    handle, text = ctypes.c_void_p, ctypes.c_char_p
    library.nfs_init_context.restype = handle
    library.nfs_get_error.restype = text
    library.nfs_readdir.restype = ctypes.POINTER(_Entry)
    library.nfs_closedir.restype = None
    for name in ("close", "fsync"):
        getattr(library, f"nfs_{name}").argtypes = [handle, handle]
    for name in ("pread", "pwrite"):
        getattr(library, f"nfs_{name}").argtypes = [handle, handle, ctypes.c_uint64, ctypes.c_uint64, text]
    library.nfs_truncate.argtypes = [handle, text, ctypes.c_uint64]
    return library


if __name__ == "__main__":
    _version, _export, _folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    _server, _, _path = _export.partition(":")
    # libnfs is not thread-safe, so FUSE runs in one thread.
    _operations = NfsOperations(Nfs(_version, _server, _path), _CHUNK[_version])
    FUSE(_operations, _folder, foreground=True, nothreads=True)
