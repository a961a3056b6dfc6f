"""Container images made of a few small layers, for tests that read images."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping


def layer(**contents: bytes) -> bytes:
    """Pack a layer: path → data; `link:` and a path is a symbolic link, `folder:` a folder."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path, data in contents.items():
            member = tarfile.TarInfo(path)
            if data.startswith(b"link:"):
                member.type, member.linkname = tarfile.SYMTYPE, data.removeprefix(b"link:").decode()
                tar.addfile(member)
            elif data == b"folder:":
                member.type = tarfile.DIRTYPE
                tar.addfile(member)
            else:
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def blobs(*layers: bytes, environment: Mapping[str, str] | None = None) -> dict[str, bytes]:
    """Make an image of layers from the lowest up; its index is under `index`."""
    pairs = [f"{name}={value}" for name, value in (environment or {}).items()]
    config = json.dumps({"architecture": "amd64", "config": {"Env": pairs}}).encode()
    described = [{"digest": digest(data), "size": len(data)} for data in layers]
    manifest = json.dumps({"config": {"digest": digest(config)}, "layers": described}).encode()
    attested = {"digest": "sha256:00", "platform": {"architecture": "unknown"}}
    image = {"digest": digest(manifest), "platform": {"architecture": "amd64"}}
    index = json.dumps({"manifests": [attested, image]}).encode()
    parts = {digest(data): data for data in (*layers, config, manifest)}
    return {**parts, "index": index}
