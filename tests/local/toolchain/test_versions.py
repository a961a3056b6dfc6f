"""versions.yaml, Go modules and lock files: pinned, consistent, and with hashes."""

import re
from pathlib import Path

import pytest
import yaml

from engine.paths import REPOSITORY
from infra.errors import InputError
from local.locked import locked_versions
from local.toolchain.versions import Versions
from tests.problems import problems_of


def required(folder: str) -> str:
    return (REPOSITORY / "local/go" / folder / "go.mod").read_text()


def test_every_build_is_pinned_by_a_go_module(versions: Versions) -> None:
    for name, build in versions.builds.items():
        if build.module.startswith("trainyard.local/"):
            continue
        pattern = rf"(?m)^\s*(?:require )?{re.escape(build.module)} (\S+)"
        (pinned,) = re.findall(pattern, required(build.folder))
        assert pinned == f"v{build.version}" or name == "pulumi-resource-kubernetes", name


def test_every_module_folder_is_of_a_pinned_module(versions: Versions) -> None:
    files = [*versions.charts.values(), *versions.manifests.values()]
    pinned = {(pin.folder, pin.module) for pin in files}
    pinned |= {(plugin.folder, plugin.module) for plugin in versions.plugins.values()}
    for folder, module in pinned:
        assert f"{module} v" in required(folder), module


def test_every_image_has_a_program_that_we_build_statically(versions: Versions) -> None:
    for image in versions.images.values():
        assert versions.builds[versions.build_of(image.program)].path is None


def test_every_lock_file_has_hashes_and_no_addresses(versions: Versions) -> None:
    locks = sorted((REPOSITORY / "requirements").glob("*.txt"))
    assert {lock.name for lock in locks} >= {"host.txt", "training.txt"}
    for lock in locks:
        text = lock.read_text()
        assert "--hash=sha256:" in text
        assert "://" not in text
        assert "--index-url" not in text


@pytest.mark.parametrize("locks", [("host", "plugin"), ("training", "training-rocm", "peers")])
def test_locks_of_one_process_agree_on_the_versions_that_they_share(locks: tuple[str, ...]) -> None:
    pins: dict[str, set[str]] = {}
    for lock in locks:
        for name, version in locked_versions(REPOSITORY / f"requirements/{lock}.txt").items():
            pins.setdefault(name, set()).add(version)
    assert {name for name, versions in pins.items() if len(versions) > 1} == set()


def test_go_modules_are_not_replaced_by_folders() -> None:
    for file in (REPOSITORY / "local/go").glob("*/go.mod"):
        assert not re.search(r"=>\s+[./]", file.read_text()), file


def test_a_wrong_file_shows_every_fault_at_once(tmp_path: Path) -> None:
    document = yaml.safe_load((REPOSITORY / "versions.yaml").read_text())
    document["builds"]["helm"]["ldflag"] = "-s"
    document["builds"]["kueue"]["path"] = "newest"
    del document["packages"]["runc"]["provides"]
    file = tmp_path / "versions.yaml"
    file.write_text(yaml.safe_dump(document))
    assert [problem.path for problem in problems_of(lambda: Versions.load(file))] == [
        "versions.yaml:builds.helm.ldflag",
        "versions.yaml:builds.kueue.path",
        "versions.yaml:packages.runc.provides",
    ]


@pytest.mark.parametrize("text", ["a: [", None])
def test_a_truncated_or_missing_file_is_reported_with_a_next_step(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "versions.yaml"
    if text:
        file.write_text(text)
    with pytest.raises(InputError, match="git checkout"):
        Versions.load(file)
