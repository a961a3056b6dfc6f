"""Provider plugins of the clouds: the user's, else the publisher's release, verified by its checksums."""

import hashlib
import re
from importlib import metadata
from pathlib import Path

import pytest

from engine.paths import REPOSITORY, Paths
from infra.common.target_registry import TARGETS, target_of
from infra.errors import HostError
from local.toolchain import Toolchain
from local.toolchain.artifact import Action
from local.toolchain.providers import ProviderPlugin
from local.toolchain.releases import Releases
from local.toolchain.store import ArtifactStore
from local.toolchain.versions import PinnedProvider, PinnedRelease, Versions
from tests.engine.progress import RecordedProgress
from tests.local.toolchain.conftest import ReleaseSite, tar_of

ARCHIVE = "pulumi-resource-aws-v7.1.0.tar.gz"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PULUMI_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def plugin(
    folder: Path, address: str = "http://127.0.0.1:9", *, allowed: bool = True, sdk: str = "not-installed"
) -> ProviderPlugin:
    (folder / "aws.txt").write_text("pulumi==3.0.0 \\\n    --hash=…\nnot-installed==7.1.0 \\\n")
    provider = PinnedProvider(
        lock=Path("aws.txt"),
        distribution=sdk,
        release=PinnedRelease(
            archive=f"{address}/pulumi-resource-aws-v{{version}}.tar.gz",
            checksums=f"{address}/pulumi-aws_{{version}}_checksums.txt",
        ),
        disk_mib=1,
    )
    return ProviderPlugin(
        "aws",
        provider,
        store=ArtifactStore(folder / "cache"),
        releases=Releases(allowed=allowed),
        repository=folder,
        ours=folder / "bin",
    )


def install(home: Path) -> Path:
    """Install a fake plugin at the path of `pulumi plugin install`."""
    program = home / "plugins" / "resource-aws-v7.1.0" / "pulumi-resource-aws"
    program.parent.mkdir(parents=True)
    program.write_text("the user's")
    return program


def publish(site: ReleaseSite, content: bytes, digest: str) -> None:
    """Publish a provider with the checksums that `shasum ./*.tar.gz` writes."""
    site.files[f"/{ARCHIVE}"] = content
    site.files["/pulumi-aws_7.1.0_checksums.txt"] = f"{digest}  ./{ARCHIVE}\n".encode()


def test_the_users_plugin_is_used_and_nothing_is_downloaded(home: Path, tmp_path: Path) -> None:
    found = plugin(tmp_path, allowed=False)
    assert found.plan().action is Action.DOWNLOAD
    program = install(home / ".pulumi")
    found = plugin(tmp_path, allowed=False)
    assert found.plan().action is Action.PRESENT
    assert found.paths() == {"binary/pulumi-resource-aws": program}


def test_the_users_kubernetes_plugin_is_found_unless_it_is_for_another_machine(
    home: Path, tmp_path: Path
) -> None:
    program = home / ".pulumi/plugins/resource-kubernetes-v4.25.0/pulumi-resource-kubernetes"
    program.parent.mkdir(parents=True)
    toolchain = Toolchain(
        Paths(tmp_path, tmp_path), Versions.load(), RecordedProgress(), Releases(allowed=False)
    )
    program.write_bytes(b"\xcf\xfa\xed\xfe\x0c\0\0\x01")
    assert toolchain.find(f"binary/{program.name}") != program
    program.write_bytes(b"#!")
    toolchain = Toolchain(toolchain.paths, toolchain.versions, RecordedProgress(), Releases(allowed=False))
    assert toolchain.find(f"binary/{program.name}") == program


def test_our_link_in_the_engines_home_does_not_count_as_an_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = install(tmp_path / "engine")
    program.unlink()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pulumi-resource-aws").write_text("ours")
    program.symlink_to(tmp_path / "bin" / "pulumi-resource-aws")
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "engine"))
    assert plugin(tmp_path).plan().action is Action.DOWNLOAD


@pytest.mark.parametrize("algorithm", ["sha1", "sha256"])
def test_a_release_is_verified_by_the_publishers_checksums(
    algorithm: str, site: ReleaseSite, tmp_path: Path, progress: RecordedProgress
) -> None:
    archive = tar_of(**{"pulumi-resource-aws": b"released", "LICENSE": b""})
    publish(site, archive, hashlib.new(algorithm, archive).hexdigest())
    made = plugin(tmp_path, site.address)
    assert made.problems() == []
    made.make(progress)
    assert made.paths()["binary/pulumi-resource-aws"].read_bytes() == b"released"


def test_an_unavailable_release_is_reported_with_the_command_that_installs_it(tmp_path: Path) -> None:
    (problem,) = plugin(tmp_path, allowed=False).problems()
    assert "pulumi plugin install resource aws 7.1.0" in problem.fix
    assert "TRAINYARD_DOWNLOADS=never" in problem.got
    with pytest.raises(HostError):
        raise HostError([problem])


def test_the_plugin_is_that_of_the_sdk_which_is_installed_whatever_the_lock_has(tmp_path: Path) -> None:
    assert plugin(tmp_path).version == "7.1.0"
    assert plugin(tmp_path, sdk="pulumi").version == metadata.version("pulumi") != "3.0.0"


@pytest.mark.parametrize("kind", TARGETS)
def test_every_plugin_of_a_target_is_pinned_by_its_lock(kind: str) -> None:
    known = Versions.load().providers
    for name in target_of(kind).plugins:
        lock = (REPOSITORY / known[name].lock).read_text()
        assert re.search(rf"^{known[name].distribution}==\d", lock, re.MULTILINE)
