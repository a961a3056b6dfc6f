"""Image references: split into repository, tag and digest."""

import pytest

from infra.common.images import parts, split

DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("ghcr.io/a/b:1", ("ghcr.io", "a/b", "1")),
        ("registry.example:5000/a/b:1", ("registry.example:5000", "a/b", "1")),
        ("registry.example:5000/a/b", ("registry.example:5000", "a/b", "")),
        (f"ghcr.io/a/b:1@{DIGEST}", ("ghcr.io", "a/b", f"1@{DIGEST}")),
        (f"ghcr.io/a/b@{DIGEST}", ("ghcr.io", "a/b", f"@{DIGEST}")),
    ],
)
def test_a_reference_without_some_parts_is_split(reference: str, expected: tuple[str, str, str]) -> None:
    assert split(reference) == expected


@pytest.mark.parametrize("version", ["v1", f"v1@{DIGEST}"])
def test_a_digest_is_part_of_the_version(version: str) -> None:
    expected = {"repository": "nvcr.io/nvidia/cloud-native", "image": "driver", "version": version}
    assert parts(f"nvcr.io/nvidia/cloud-native/driver:{version}") == expected
