"""Released programs: downloaded from a fake site, verified by checksum, and extracted."""

import hashlib
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from infra.errors import TrainyardError
from local.toolchain import releases
from local.toolchain.releases import ARCHITECTURE, BrokenOffError, Releases
from local.toolchain.versions import Build, GoProgram, PinnedRelease, Versions
from tests.engine.progress import RecordedProgress
from tests.infra.golden import GOLDEN, assert_matches
from tests.local.toolchain.conftest import ReleaseSite, tar_of
from tests.problems import problem_of


def build_on(
    site: ReleaseSite,
    *,
    archive: str = "{program}-{version}",
    programs: tuple[str, ...] = ("tool",),
    also: tuple[str, ...] = (),
) -> Build:
    return Build(
        folder="tool",
        module="example.test/tool",
        version="1.2.3",
        programs={name: GoProgram(package=".") for name in programs},
        path=SpecifierSet(">=1"),
        release=PinnedRelease(
            archive=f"{site.address}/{archive}", checksums=f"{site.address}/{archive}.sha256", also=also
        ),
        disk_mib=1,
    )


def fetch(build: Build, folder: Path) -> str:
    assert build.release
    return Releases(allowed=True).fetch(build, build.release, folder, RecordedProgress())


def test_a_released_program_is_fetched_and_checked(site: ReleaseSite, tmp_path: Path) -> None:
    site.publish("tool-1.2.3", b"program")
    origin = fetch(build_on(site), tmp_path)
    assert (tmp_path / "tool").read_bytes() == b"program"
    assert (tmp_path / "tool").stat().st_mode & 0o777 == 0o755
    assert origin == "release 1.2.3, verified, from 127.0.0.1"
    assert [path.name for path in tmp_path.iterdir()] == ["tool"]


def test_only_one_program_is_extracted(site: ReleaseSite, tmp_path: Path) -> None:
    site.publish("tool-1.2.3.tar.gz", tar_of(tool=b"a", helper=b"b", README=b"c"))
    fetch(build_on(site, archive="tool-{version}.tar.gz", also=("helper",)), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["helper", "tool"]


def test_programs_that_are_released_one_by_one_are_each_fetched(site: ReleaseSite, tmp_path: Path) -> None:
    site.publish("one-1.2.3", b"1")
    site.publish("two-1.2.3", b"2")
    fetch(build_on(site, programs=("one", "two")), tmp_path)
    assert (tmp_path / "two").read_bytes() == b"2"


def test_a_list_of_checksums_is_read_by_file_name(site: ReleaseSite, tmp_path: Path) -> None:
    site.publish("tool-1.2.3", b"program")
    wrong = hashlib.sha256(b"other").hexdigest()
    right = hashlib.sha256(b"program").hexdigest()
    listed = f"{wrong}  tool-1.2.3.sbom\n{right} *tool-1.2.3\n"
    site.files["/tool-1.2.3.sha256"] = listed.encode()
    fetch(build_on(site), tmp_path)
    assert (tmp_path / "tool").exists()


@pytest.mark.parametrize("checksum", ["0" * 64, "not a checksum"])
def test_a_wrong_checksum_is_refused(site: ReleaseSite, tmp_path: Path, checksum: str) -> None:
    site.publish("tool-1.2.3", b"tampered", checksum=checksum)
    problem = problem_of(lambda: fetch(build_on(site), tmp_path), TrainyardError)
    assert problem.path.endswith("/tool-1.2.3")
    assert hashlib.sha256(b"tampered").hexdigest() in problem.got
    assert "TRAINYARD_DOWNLOADS=never" in problem.fix
    assert not (tmp_path / "tool").exists()


def test_an_archive_without_the_program_is_refused(site: ReleaseSite, tmp_path: Path) -> None:
    site.publish("tool-1.2.3.tar.gz", tar_of(other=b"a"))
    with pytest.raises(TrainyardError, match="no tool in it"):
        fetch(build_on(site, archive="tool-{version}.tar.gz"), tmp_path)


@pytest.mark.parametrize(
    ("start", "foreign"),
    [
        (b"\x7fELF".ljust(18, b"\0") + b"\x3e\0", "linux amd64"),
        (b"\xcf\xfa\xed\xfe\x0c\0\0\x01", "darwin arm64"),
    ],
)
def test_a_program_of_another_machine_is_refused(
    start: bytes, foreign: str, site: ReleaseSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "SYSTEM", "plan9")
    site.publish("tool-1.2.3", start)
    with pytest.raises(TrainyardError, match=f"tool for {foreign}\n.* one for plan9 {ARCHITECTURE}"):
        fetch(build_on(site), tmp_path)


def test_every_download_is_for_the_system_and_the_processor(versions: Versions) -> None:
    found = {}
    parts: dict[str, Any] = {**versions.builds, **versions.providers}
    for name, each in parts.items():
        build: Any = SimpleNamespace(version=getattr(each, "version", "{version}"))
        program = next(iter(getattr(each, "programs", [name])))
        found[name] = [
            releases._filled(each.release.archive, build, program, system, architecture)
            for system, architecture in product(("linux", "darwin"), ("amd64", "arm64"))
            if each.release
        ]
    assert_matches(yaml.safe_dump(found, width=200), GOLDEN / "downloads.yaml")


def test_a_broken_download_is_reported(site: ReleaseSite, tmp_path: Path) -> None:
    site.publish("tool-1.2.3", b"program")
    del site.files["/tool-1.2.3"]
    with pytest.raises(BrokenOffError, match="404"):
        fetch(build_on(site), tmp_path)


def test_a_release_is_refused_only_with_a_reason(site: ReleaseSite) -> None:
    assert "answers 404" in Releases(allowed=True).refusal(build_on(site))
    site.publish("tool-1.2.3", b"program")
    assert Releases(allowed=True).refusal(build_on(site)) == ""


def test_a_site_that_does_not_answer_gets_one_request(site: ReleaseSite) -> None:
    build = build_on(site)
    unreachable = build.model_copy(
        update={
            "release": PinnedRelease(archive="http://127.0.0.1:9/a", checksums="http://127.0.0.1:9/a.sha256")
        }
    )
    site_of = Releases(allowed=True)
    assert "127.0.0.1 cannot be reached" in site_of.refusal(unreachable)
    assert "127.0.0.1 cannot be reached" in site_of.refusal(build)
    assert site.asked == []


def test_nothing_is_asked_where_downloads_are_forbidden_or_none_is_released(site: ReleaseSite) -> None:
    never = Releases.from_environment({"TRAINYARD_DOWNLOADS": "never"})
    assert never.refusal(build_on(site)) == "TRAINYARD_DOWNLOADS=never"
    build = build_on(site).model_copy(update={"release": None})
    assert Releases(allowed=True).refusal(build) == "its publisher releases no program"
    assert site.asked == []
