"""The stack file's `images` section: the digest of each image tag."""

from typing import Annotated

from pydantic import Field

from infra.stackfile.base import Spec, matching

Reference = Annotated[
    str,
    matching(
        "image_reference",
        r"[a-z0-9][^\s@]*",
        "an image by its tag, as `trainyard stack images` lists it",
        "let `trainyard stack images --lock` write it",
    ),
]
Digest = Annotated[
    str,
    matching(
        "image_digest",
        r"sha256:[0-9a-f]{64}",
        "sha256: and 64 hex digits",
        "let `trainyard stack images --lock` write it",
    ),
]

PinnedImage = Annotated[
    str,
    matching(
        "image",
        r"[^\s@]+@sha256:[0-9a-f]{64}",
        "an image by its digest: registry.example.com/name@sha256:…, which no push changes",
        "`docker buildx imagetools inspect NAME:TAG` shows its digest",
    ),
]


class ImagesSpec(Spec):
    """Digests that pin the images which charts and manifests name by tag."""

    digests: dict[Reference, Digest] = Field(
        default={}, description="image reference to digest, as `trainyard stack images --lock` writes them"
    )

    def pinned(self, reference: str) -> str:
        """Return the image with its digest, where it has one here; the tag remains, to be read."""
        digest = self.digests.get(reference)
        return f"{reference}@{digest}" if digest else reference
