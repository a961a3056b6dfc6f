"""Writes files atomically, readable by root only."""

import os
from pathlib import Path


def write(path: Path, content: bytes | str) -> None:
    """Write a file of mode 0600 atomically, even if this process is killed.

    A file with this content is not written: kube-proxy restarts when its config is written.
    """
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    temporary.replace(path)
