"""A filesystem that cannot grow, or has to move: a second one is made beside it, the two are exchanged in the
stack file, and no step replaces either.
"""

import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.paths import REPOSITORY
from infra.errors import InputError
from infra.stackfile import Stack, load
from tests.infra.plan import Plan, plan, stack_file

MADE: dict[str, tuple[str, dict[str, Any]]] = {
    "aws": ("LustreFileSystem", {"kind": "lustre", "capacity": "38400Gi", "efa": True}),
    "gcp": ("lustre/instance:Instance", {"kind": "lustre", "capacity": "36000Gi"}),
    "azure": ("AmlFilesystem", {"kind": "lustre", "capacity": "32Ti"}),
    "onprem": ("none", {"kind": "nfs", "server": "192.0.2.9", "share": "/new"}),
}
SHARED = {"data", "checkpoints", "datasets", "logs", "second"}
EXAMPLE = REPOSITORY / "examples" / "copy-filesystem.yaml"


def stack_with(cloud: str, folder: Path, *, exchanged: bool = False, **more: Any) -> Stack:
    data = yaml.safe_load(stack_file(cloud).read_text())
    target = data["config"]["trainyard:stack"]["target"]
    target["second_filesystem"] = {**MADE[cloud][1], "name": "b", **more}
    if exchanged:
        both = target["second_filesystem"], deepcopy(target["filesystem"])
        target["filesystem"], target["second_filesystem"] = both
    file = folder / "Pulumi.mine.yaml"
    file.write_text(yaml.safe_dump(data, sort_keys=False))
    return load(file)


def of_kind(found: Plan, kind: str) -> dict[str, Any]:
    """Inputs, and whether it is protected, of each filesystem."""
    return {each.urn: (each.inputs, each.protect) for each in found.resources if each.type.endswith(kind)}


def volumes(found: Plan) -> dict[str, str]:
    """Volume of each claim that is on a filesystem."""
    claims = found.named("PersistentVolumeClaim").items()
    return {name: each["spec"]["volumeName"] for name, each in claims if name.rpartition("/")[2] in SHARED}


@pytest.mark.parametrize("name", MADE)
def test_a_second_filesystem_is_made_and_exchanged_and_neither_is_replaced(
    name: str, tmp_path: Path, rendered: Path
) -> None:
    kind, protected = MADE[name][0], [] if name == "onprem" else [True, True]
    before = plan(load(stack_file(name)), rendered)
    beside = plan(stack_with(name, tmp_path), rendered)
    after = plan(stack_with(name, tmp_path, exchanged=True), rendered)
    assert of_kind(before, kind).items() <= of_kind(beside, kind).items(), "the first one is as it was"
    assert of_kind(beside, kind) == of_kind(after, kind)
    assert [is_protected for _, is_protected in of_kind(beside, kind).values()] == protected
    unchanged, moved = volumes(beside), volumes(after)
    second = "trainyard-storage/second"
    assert volumes(before) == {claim: each for claim, each in unchanged.items() if claim != second}
    assert all(moved[claim] != each for claim, each in unchanged.items())
    old, new = (found.named("PersistentVolume") for found in (beside, after))
    data = old[unchanged["trainyard-storage/data"]]
    assert new[moved[second]]["spec"]["csi"] == data["spec"]["csi"]


def test_the_second_filesystem_is_checked_as_the_stacks_own(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        stack_with("azure", tmp_path, name=None, capacity="17Ti")
    assert {each.path for each in caught.value.problems} >= {
        "target.second_filesystem.name",
        "target.second_filesystem.capacity",
    }


def test_the_copy_of_the_example_is_whole_can_be_repeated_and_keeps_what_is_cut_short_apart(
    tmp_path: Path,
) -> None:
    (container,) = yaml.safe_load(EXAMPLE.read_text())["spec"]["template"]["spec"]["containers"]
    program = [sys.executable, "-c", container["command"][2], tmp_path / "from", tmp_path / "to"]
    source, there = (tmp_path / each / "checkpoints" / "a" for each in ("from", "to"))
    source.mkdir(parents=True, mode=0o750)
    (tmp_path / "to").mkdir()
    (source / "large").write_bytes(b"x" * (2 << 20))
    (source / "latest").symlink_to("large")
    for text, copied in (("1", "0.002"), ("2", "0.000"), ("3", "0.002")):
        (source / "small").write_text(text)
        if text == "3":  # a copy that was killed
            (there / "large").rename(there / "large.copying")
        done = subprocess.run(program, check=True, capture_output=True, text=True)
        assert done.stdout == f"3 files are there; {copied} GiB were copied now\n"
        assert (there / "small").read_text() == text
        assert (there / "large").read_bytes() == (source / "large").read_bytes()
        assert (there / "latest").readlink() == Path("large")
        assert there.stat().st_mode == source.stat().st_mode
        assert len(list(there.iterdir())) == 3
