"""The contents of images, read layer by layer from an archive."""

import gzip
import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.image_lint import ImageContents
from engine.progress import PlainProgress
from tests.trainyard.images.layers import blobs, digest, layer
from trainyard.images.contents import ImageArchive, LayerRead, UnreadableImageError, read_image
from trainyard.images.images import Inventory, unfit_archive


def archive(file: Path, parts: Mapping[str, bytes]) -> ImageArchive:
    named = {f"blobs/{name.replace(':', '/')}": data for name, data in parts.items() if name != "index"}
    file.write_bytes(layer(**{"index.json": parts["index"], **named}))
    return ImageArchive(file)


def read(folder: Path, *layers: bytes) -> ImageContents:
    return read_image(archive(folder / "image.tar", blobs(*layers)))


def test_upper_layers_replace_and_remove_files_of_lower_ones(tmp_path: Path) -> None:
    lower = layer(
        **{"./usr/lib/a.so": b"1", "etc/old": b"", "opt/x/one": b"", "opt/y": b"", "lib": b"link:usr/lib"}
    )
    upper = layer(
        **{
            "usr/lib/b.so": b"link:a.so",
            "etc/.wh.old": b"",
            "opt/x/.wh..wh..opq": b"",
            "opt/x/two": b"",
            "opt/y": b"folder:",
            "opt/y/z": b"",
        }
    )
    found = read(tmp_path, lower, gzip.compress(upper))
    assert found.files == {"usr/lib/a.so", "opt/x/two", "opt/y/z"}
    assert found.links == {"lib": "usr/lib", "usr/lib/b.so": "a.so"}


def test_a_layer_may_remove_a_folder_and_add_it_again(tmp_path: Path) -> None:
    for whiteout in (".wh.etc", ".wh..wh..opq"):
        upper = layer(**{whiteout: b"", "etc/new": b""})
        assert read(tmp_path, layer(**{"etc/old": b""}), upper).files == {"etc/new"}


def test_the_loaders_cache_of_the_top_layer_is_read(tmp_path: Path) -> None:
    old, new = (
        b"glibc-ld.so.cache1.1\1\2" + text for text in (b"\0/opt/old.so\0", b"x.so\0/opt/lib/x.so\0y\0")
    )
    found = read(tmp_path, layer(**{"etc/ld.so.cache": old}), layer(**{"etc/ld.so.cache": new}))
    assert found.cached == {"opt/lib/x.so"}


def test_no_layer_is_read_below_the_one_that_has_all_files(tmp_path: Path) -> None:
    layers = [layer(**{name: b""}) for name in ("one", "two", "three")]
    seen: list[LayerRead] = []
    parts = blobs(*layers, environment={"LD_LIBRARY_PATH": "/opt"})
    del parts[digest(layers[0])]  # reading it would fail
    image = archive(tmp_path / "image.tar", parts)
    found = read_image(image, "amd64", enough=lambda contents: "two" in contents.files, on_layer=seen.append)
    assert found.files == {"two", "three"}
    assert found.environment == {"LD_LIBRARY_PATH": "/opt"}
    assert [(each.layer, each.layers) for each in seen] == [(1, 3), (2, 3)]


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (gzip.compress(layer(one=b""), mtime=0)[:40], "not a tar archive"),
        (b"\x28\xb5\x2f\xfd" + b"\0" * 600, "zstd"),
        (b"nonsense" * 100, "not a tar archive"),
    ],
    ids=["cut short", "zstd", "no layer"],
)
def test_a_layer_that_cannot_be_read_is_reported(tmp_path: Path, broken: bytes, why: str) -> None:
    with pytest.raises(UnreadableImageError, match=why):
        read(tmp_path, broken)


def test_an_image_for_another_processor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableImageError, match="arm64"):
        read_image(archive(tmp_path / "image.tar", blobs(layer(one=b""))), "arm64")
    (tmp_path / "no.tar").write_text("no image")
    with pytest.raises(UnreadableImageError, match="OCI image layout"):
        read_image(ImageArchive(tmp_path / "no.tar"))


def test_an_archive_is_checked_for_every_fabric_of_the_stack(tmp_path: Path) -> None:
    archive(
        tmp_path / "image.tar",
        blobs(layer(**{"usr/lib/libibverbs.so.1": b"", "etc/libibverbs.d/mlx5.driver": b""})),
    )
    found = Inventory((), (), fabrics={"one": ("ib-ndr", "ib-hdr"), "two": ("ib-shared",)})
    log = io.StringIO()
    (problem,) = unfit_archive(found, tmp_path / "image.tar", PlainProgress(log))
    assert problem.path == str(tmp_path / "image.tar")
    assert problem.got == "no libibverbs/libmlx5-rdmav*.so"
    assert "ibverbs-providers" in problem.fix
    assert "reading " in log.getvalue()
    none = replace(found, fabrics={})
    assert unfit_archive(none, tmp_path / "image.tar", PlainProgress(log)) == []
