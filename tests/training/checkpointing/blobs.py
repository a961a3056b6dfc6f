"""Fakes of Google Cloud Storage and Azure Blob Storage: the requests of their APIs that checkpoints use.

They serve what obstore sends to the XML and REST APIs: objects, in one request or in parts, ranges and
lists. Credentials are not checked. A rule can make requests fail, as in `tests.training.s3`.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.servers import QuietHandler, serving

MODIFIED = "Sun, 22 Nov 2026 10:00:00 GMT"
ACCOUNT = "devstoreaccount1"


@dataclass
class Blobs:
    """The objects of one account, and the requests for them."""

    objects: dict[str, bytes] = field(default_factory=dict)
    """`container/key` → content."""
    parts: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    rule: Callable[[str, str], int] = lambda verb, path: 0
    """Verb and path → the status to fail with, or 0 to serve the request."""

    def below(self, container: str, asked: Mapping[str, str]) -> tuple[list[tuple[str, int]], list[str]]:
        """List a container: keys with the requested prefix and their sizes, and folders by the delimiter."""
        prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter", "")
        keys: list[tuple[str, int]] = []
        folders: list[str] = []
        for name, data in sorted(self.objects.items()):
            holder, _, key = name.partition("/")
            if holder != container or not key.startswith(prefix):
                continue
            inside, parted, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
            if not parted:
                keys.append((key, len(data)))
            elif (folder := f"{prefix}{inside}/") not in folders:
                folders.append(folder)
        return keys, folders


@dataclass(frozen=True)
class BlobResponse:
    """A response of a fake."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class _BlobHandler(QuietHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    blobs: ClassVar[Blobs]

    def _answer(self) -> None:
        address = urlsplit(self.path)
        name, asked = unquote(address.path).strip("/"), dict(parse_qsl(address.query, keep_blank_values=True))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.blobs.requests.append((self.command, unquote(self.path)))
        failing = self.blobs.rule(self.command, self.path)
        answer = BlobResponse(failing) if failing else self.act(name, asked, body)
        self.send_response(answer.status)
        for key, value in {"ETag": '"1"', "Last-Modified": MODIFIED, **answer.headers}.items():
            self.send_header(key, value)
        if "Content-Length" not in answer.headers:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _answer

    def act(self, name: str, asked: Mapping[str, str], body: bytes) -> BlobResponse:
        raise NotImplementedError

    def read(self, name: str) -> BlobResponse:
        """Serve GET and HEAD of an object, or of a range of it."""
        data = self.blobs.objects.get(name)
        if data is None:
            return BlobResponse(404)
        if self.command == "HEAD":
            return BlobResponse(200, b"", {"Content-Length": str(len(data))})
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        if not found:
            return BlobResponse(200, data)
        start, stop = int(found[1]), min(int(found[2]) + 1, len(data))
        return BlobResponse(206, data[start:stop], {"Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"})

    def join(self, name: str, parts: list[str]) -> None:
        """Make an object of uploaded parts."""
        self.blobs.objects[name] = b"".join(self.blobs.parts.pop(f"{name}/{part}") for part in parts)


class GcpXmlApi(_BlobHandler):
    """Google's XML API, which is S3's except for the credentials."""

    def act(self, name: str, asked: Mapping[str, str], body: bytes) -> BlobResponse:
        if "list-type" in asked:
            keys, folders = self.blobs.below(name, asked)
            found = "".join(
                f"<Contents><Key>{escape(key)}</Key><Size>{size}</Size><ETag>1</ETag>"
                "<LastModified>2026-11-22T10:00:00.000Z</LastModified></Contents>"
                for key, size in keys
            )
            found += "".join(
                f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>" for folder in folders
            )
            return BlobResponse(200, f"<ListBucketResult>{found}</ListBucketResult>".encode())
        if self.command == "POST" and "uploads" in asked:
            root = "InitiateMultipartUploadResult"
            return BlobResponse(200, f"<{root}><UploadId>1</UploadId></{root}>".encode())
        if self.command == "PUT" and "partNumber" in asked:
            self.blobs.parts[f"{name}/{asked['partNumber']}"] = body
            return BlobResponse(200)
        if self.command == "POST":
            self.join(name, re.findall(r"<PartNumber>(\d+)</PartNumber>", body.decode()))
            return BlobResponse(
                200, b"<CompleteMultipartUploadResult><ETag>1</ETag></CompleteMultipartUploadResult>"
            )
        if self.command == "PUT":
            self.blobs.objects[name] = body
            return BlobResponse(200)
        if self.command == "DELETE":
            return BlobResponse(204 if self.blobs.objects.pop(name, None) is not None else 404)
        return self.read(name)


class AzureBlobApi(_BlobHandler):
    """Azure's REST API of an account, whose name comes first in paths, as with Azurite."""

    def act(self, name: str, asked: Mapping[str, str], body: bytes) -> BlobResponse:
        name = name.partition("/")[2]
        if asked.get("comp") == "batch":
            return self.delete_all(re.findall(r"DELETE /(\S+) HTTP", body.decode()))
        if asked.get("comp") == "list":
            keys, folders = self.blobs.below(name, asked)
            found = "".join(
                f"<Blob><Name>{escape(key)}</Name><Properties><Last-Modified>{MODIFIED}</Last-Modified>"
                f"<Etag>1</Etag><Content-Length>{size}</Content-Length><Content-Type>x/y</Content-Type>"
                "</Properties></Blob>"
                for key, size in keys
            )
            found += "".join(f"<BlobPrefix><Name>{escape(folder)}</Name></BlobPrefix>" for folder in folders)
            listed = f"<EnumerationResults><Blobs>{found}</Blobs></EnumerationResults>"
            return BlobResponse(200, listed.encode())
        if asked.get("comp") == "block":
            self.blobs.parts[f"{name}/{asked['blockid']}"] = body
            return BlobResponse(201)
        if asked.get("comp") == "blocklist":
            self.join(name, re.findall(r"<\w+>([^<]+)</\w+>", body.decode()))
            return BlobResponse(201)
        if self.command == "PUT":
            self.blobs.objects[name] = body
            return BlobResponse(201)
        if self.command == "DELETE":
            return BlobResponse(202 if self.blobs.objects.pop(name, None) is not None else 404)
        return self.read(name)

    def delete_all(self, addresses: list[str]) -> BlobResponse:
        """Serve a batch of deletions, whose response has a part for each request."""
        lines = []
        for number, address in enumerate(addresses):
            name = unquote(address.partition("?")[0]).removeprefix(f"{ACCOUNT}/")
            existed = self.blobs.objects.pop(name, None) is not None
            status = "202 Accepted" if existed else "404 The specified blob does not exist"
            lines += ["--batch", "Content-Type: application/http", f"Content-ID: {number}", ""]
            lines += [f"HTTP/1.1 {status}", "x-ms-request-id: 1", "", ""]
        body = "\r\n".join([*lines, "--batch--", ""]).encode()
        return BlobResponse(202, body, {"Content-Type": "multipart/mixed; boundary=batch"})


@contextmanager
def serve(kind: type[_BlobHandler]) -> Iterator[tuple[Blobs, str]]:
    """Serve a store; yields its objects, and its address."""
    blobs = Blobs()
    with serving(type("Handler", (kind,), {"blobs": blobs})) as server:
        yield blobs, f"http://127.0.0.1:{server.server_port}"
