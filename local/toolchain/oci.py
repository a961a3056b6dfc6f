"""Writes OCI image archives, with no registry, daemon or builder.

An archive is an OCI image layout (Image Format Specification 1.1) in a tar file, with the `manifest.json` of
Docker: `ctr images import`, `kind load image-archive`, `docker load` all take it. The same input makes
the same bytes: times are zero, names are sorted.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from local.toolchain.store import sha256

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_EPOCH = "1970-01-01T00:00:00Z"


@dataclass(frozen=True)
class Content:
    """One file or folder of a layer."""

    mode: int = 0o644
    source: Path | None = None
    """File to copy; an entry with neither `source` nor `data` is a folder."""
    data: bytes | None = None
    owner: int = 0
    """Numeric IDs of user and group."""


@dataclass(frozen=True)
class Settings:
    """Entrypoint, command, user, environment and folder of a container."""

    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    user: str = "65532:65532"
    environment: Mapping[str, str] = field(default_factory=dict)
    working_folder: str = "/"


def write_layer(file: Path, contents: Mapping[str, Content]) -> None:
    """Write a layer: path in the image → content. Folders above them are made, owned by root."""
    with tarfile.open(file, "w", format=tarfile.GNU_FORMAT) as tar:
        for name in sorted({*contents, *_folders_above(contents)}):
            content = contents.get(name, Content(0o755))
            member = tarfile.TarInfo(name.strip("/"))
            member.mode, member.uid, member.gid = content.mode, content.owner, content.owner
            if content.source is not None:
                member.size = content.source.stat().st_size
                with content.source.open("rb") as stream:
                    tar.addfile(member, stream)
            elif content.data is not None:
                member.size = len(content.data)
                tar.addfile(member, io.BytesIO(content.data))
            else:
                member.type = tarfile.DIRTYPE
                tar.addfile(member)


def write_archive(
    file: Path, *, names: Sequence[str], settings: Settings, layers: Sequence[Path], architecture: str
) -> None:
    """Write an image archive: the layers from the lowest up, under every one of its `names`."""
    digests = [sha256(layer) for layer in layers]
    config = _json(_config(settings, digests, architecture))
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(_CONFIG, config),
            "layers": [
                {"mediaType": _LAYER, "digest": f"sha256:{digest}", "size": layer.stat().st_size}
                for digest, layer in zip(digests, layers, strict=True)
            ],
        }
    )
    named = [
        {**_descriptor(_MANIFEST, manifest), "annotations": {"io.containerd.image.name": name}}
        for name in names
    ]
    docker = [
        {"Config": _blob(config), "RepoTags": list(names), "Layers": [f"blobs/sha256/{d}" for d in digests]}
    ]
    contents = {
        "oci-layout": Content(data=_json({"imageLayoutVersion": "1.0.0"})),
        "index.json": Content(data=_json({"schemaVersion": 2, "manifests": named})),
        "manifest.json": Content(data=_json(docker)),
        _blob(config): Content(data=config),
        _blob(manifest): Content(data=manifest),
    }
    blobs = {f"blobs/sha256/{d}": Content(source=layer) for d, layer in zip(digests, layers, strict=True)}
    write_layer(file, {**contents, **blobs})


def _config(settings: Settings, digests: Sequence[str], architecture: str) -> object:
    return {
        "architecture": architecture,
        "os": "linux",
        "created": _EPOCH,
        "config": {
            "User": settings.user,
            "Env": [f"{name}={value}" for name, value in settings.environment.items()],
            "Entrypoint": list(settings.entrypoint) or None,
            "Cmd": list(settings.command) or None,
            "WorkingDir": settings.working_folder,
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        "history": [{"created": _EPOCH} for _ in digests],
    }


def _folders_above(names: Mapping[str, Content]) -> set[str]:
    parents = (parent for name in names for parent in PurePosixPath(name).parents)
    return {str(parent) for parent in parents} - {"/", "."}


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _blob(data: bytes) -> str:
    return f"blobs/sha256/{_digest(data)}"


def _descriptor(media_type: str, data: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": f"sha256:{_digest(data)}", "size": len(data)}
