"""On-disk store of the resources that fake providers have created, one file each."""

import hashlib
import json
import os
import secrets
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class StoredResource:
    """A resource that exists."""

    urn: str
    id: str
    inputs: dict[str, Any]
    """Inputs in the protocol's format, with marks of secrets."""
    outputs: dict[str, Any] = field(default_factory=dict)
    """All properties, inputs included."""

    @property
    def token(self) -> str:
        """Type token: the last in the URN's chain of parents."""
        return self.urn.split("::")[2].rpartition("$")[2]

    @property
    def name(self) -> str:
        """Logical name."""
        return self.urn.split("::", 3)[3]


class ResourceStore:
    """Resources by type and ID. Safe to use from many threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        read = [StoredResource(**json.loads(file.read_text())) for file in sorted(folder.glob("*.json"))]
        self._resources = {_key(each.token, each.id): each for each in read}

    def __iter__(self) -> Iterator[StoredResource]:
        with self._lock:
            return iter(list(self._resources.values()))

    def get(self, token: str, identity: str) -> StoredResource | None:
        """Return a resource; None where there is none."""
        with self._lock:
            return self._resources.get(_key(token, identity))

    def put(self, resource: StoredResource) -> None:
        """Store a resource, in place of its former version."""
        key = _key(resource.token, resource.id)
        fresh = self._folder / f".{secrets.token_hex(8)}"
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(asdict(resource), file)
        fresh.replace(self._folder / f"{key}.json")
        with self._lock:
            self._resources[key] = resource

    def drop(self, token: str, identity: str) -> None:
        """Forget a resource, if it exists."""
        key = _key(token, identity)
        with self._lock:
            self._resources.pop(key, None)
        (self._folder / f"{key}.json").unlink(missing_ok=True)


def _key(token: str, identity: str) -> str:
    return hashlib.sha256(f"{token}\n{identity}".encode()).hexdigest()[:32]
