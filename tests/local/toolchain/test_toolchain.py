"""The toolchain: plans, builds, releases, programs on PATH, and errors of the host."""

import io
import json
import os
import shutil
import sys
import tarfile
from pathlib import Path

import pytest

from infra.errors import ExitCode, HostError, TrainyardError
from local.toolchain import Action, Toolchain
from local.toolchain.releases import Releases
from tests.engine.progress import RecordedProgress
from tests.local.toolchain.conftest import ReleaseSite, Workshop, pinned
from tests.problems import problems_of


@pytest.fixture
def toolchain(workshop: Workshop, progress: RecordedProgress) -> Toolchain:
    return Toolchain(workshop.paths, pinned(), progress, Releases(allowed=False))


def next_run(toolchain: Toolchain, **changes: object) -> Toolchain:
    """Return the toolchain of a new run on the same host."""
    return Toolchain(toolchain.paths, pinned(**changes), RecordedProgress(), Releases(allowed=False))


def content_of(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file
    return file.read()


def steps(toolchain: Toolchain, *names: str) -> dict[str, tuple[Action, str]]:
    return {step.name: (step.action, step.why) for step in toolchain.plan(names)}


def test_a_plan_lists_what_would_be_done_and_why(toolchain: Toolchain, workshop: Workshop) -> None:
    plan = steps(toolchain, "image/tool")
    assert list(plan) == ["tool/go", "binary/tool", "image/tool"]
    assert plan["tool/go"] == (Action.PRESENT, f"on PATH: {workshop.machine}/go, 1.30.0")
    assert plan["binary/tool"] == (
        Action.BUILD,
        "from example.test/tool 1.2.3: its publisher releases no program",
    )
    assert plan["image/tool"] == (Action.ASSEMBLE, "around tool")
    assert not workshop.paths.cache.exists()


def test_a_missing_artifact_is_built_with_its_dependencies(
    toolchain: Toolchain, progress: RecordedProgress
) -> None:
    assert toolchain.find("binary/tool") is None
    with pytest.raises(HostError, match="trainyard up"):
        toolchain.path("binary/tool")
    toolchain.ensure("image/tool")
    assert "1 of 2 example.test/a" in progress.status
    assert toolchain.path("binary/tool").read_text().startswith("#!/bin/sh")
    plan = steps(toolchain, "image/tool", "binary/tool")
    assert plan["binary/tool"] == (Action.PRESENT, "in the cache: built from example.test/tool 1.2.3")
    assert plan["image/tool"] == (Action.PRESENT, "in the cache: around tool")


def test_a_second_run_builds_nothing_unless_go_sum_has_changed(
    toolchain: Toolchain, workshop: Workshop
) -> None:
    toolchain.ensure("binary/tool")
    next_run(toolchain).ensure("binary/tool")
    assert len(workshop.asked("build")) == 1
    with (workshop.paths.repository / "local/go/tool/go.sum").open("a") as file:
        file.write("example.test/other v1.0.0 h1:def=\n")
    next_run(toolchain).ensure("binary/tool")
    assert len(workshop.asked("build")) == 2


def test_a_fitting_program_on_path_is_used(toolchain: Toolchain, workshop: Workshop) -> None:
    workshop.install("tool", "echo tool version v1.9.0")
    assert steps(toolchain, "binary/tool")["binary/tool"] == (
        Action.PRESENT,
        f"on PATH: {workshop.machine}, fits <2,>=1.2",
    )
    toolchain.ensure("binary/tool")
    assert toolchain.path("binary/tool") == workshop.machine / "tool"
    assert workshop.asked("build") == []


@pytest.mark.parametrize("version", ["1.1.9", "2.0.0", "unknown"])
def test_a_wrong_program_on_path_is_skipped(toolchain: Toolchain, workshop: Workshop, version: str) -> None:
    workshop.install("tool", f"echo {version}")
    assert steps(toolchain, "binary/tool")["binary/tool"][0] is Action.BUILD


def test_our_links_are_not_taken_for_the_hosts_programs(
    toolchain: Toolchain, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    toolchain.ensure("binary/tool")
    monkeypatch.setenv("PATH", f"{workshop.paths.bin}:{os.environ['PATH']}")
    shutil.rmtree(workshop.paths.cache / "binary")
    assert steps(next_run(toolchain), "binary/tool")["binary/tool"][0] is Action.BUILD


def test_a_release_saves_the_build(workshop: Workshop, progress: RecordedProgress, site: ReleaseSite) -> None:
    site.publish("tool-1.2.3", b"#!/bin/sh\n")
    build = pinned().builds["tool"].model_dump(exclude={"release", "path"})
    release = {"archive": f"{site.address}/tool-1.2.3", "checksums": f"{site.address}/tool-1.2.3.sha256"}
    others = pinned().model_dump(include={"builds": {"kubectl", "pulumi"}})["builds"]
    versions = pinned(builds={**others, "tool": {**build, "release": release}})
    toolchain = Toolchain(workshop.paths, versions, progress, Releases(allowed=True))
    assert steps(toolchain, "binary/tool")["binary/tool"][0] is Action.DOWNLOAD
    toolchain.ensure("binary/tool")
    assert toolchain.path("binary/tool").read_bytes() == b"#!/bin/sh\n"
    assert workshop.asked("build") == []


def test_an_old_go_is_not_used(workshop: Workshop, progress: RecordedProgress) -> None:
    toolchain = Toolchain(
        workshop.paths, pinned(go={"minimum": "1.31", "requirements": "requirements/host.txt"}), progress
    )
    action, why = steps(toolchain, "tool/go")["tool/go"]
    assert action is Action.INSTALL
    assert why == "PATH has no go of 1.31 or newer; from host.txt, by hash"


def test_a_compile_error_is_shown_and_the_next_run_builds(toolchain: Toolchain, workshop: Workshop) -> None:
    workshop.go_fails("main.go:3: undefined: x\n")
    with pytest.raises(TrainyardError) as failed:
        toolchain.ensure("binary/tool")
    (problem,) = failed.value.problems
    assert problem.path == "binary/tool"
    assert problem.got == "main.go:3: undefined: x"
    assert failed.value.exit_code is ExitCode.FAILED
    assert list((workshop.paths.cache / "binary").iterdir()) == []
    workshop.go_works()
    toolchain.ensure("binary/tool")
    assert toolchain.path("binary/tool").exists()


@pytest.mark.parametrize(
    ("output", "advice"),
    [
        ("dial tcp: lookup proxy: no such host", "network"),
        ("write /x: no space left on device", "TRAINYARD_CACHE"),
    ],
)
def test_an_error_has_a_next_step(toolchain: Toolchain, workshop: Workshop, output: str, advice: str) -> None:
    workshop.go_fails(output)
    with pytest.raises(HostError, match=advice):
        toolchain.ensure("binary/tool")


def test_without_a_network_no_build_begins(toolchain: Toolchain, workshop: Workshop) -> None:
    workshop.go_offline()
    with pytest.raises(HostError, match="check the network"):
        toolchain.ensure("binary/tool")
    assert workshop.asked("build") == []


def test_too_little_space_stops_before_anything_is_started(
    toolchain: Toolchain, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 0))
    with pytest.raises(HostError, match="0 MiB free, 1 MiB needed"):
        toolchain.ensure("binary/tool")
    assert workshop.asked("build") == []


def test_without_root_and_packages_both_problems_are_shown_at_once(
    workshop: Workshop, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    missing = {"provides": "no-such-program"}
    versions = pinned(packages={"etcd-server": missing, "mmdebstrap": missing})
    workshop.install("apt-get", "exit 1")
    toolchain = Toolchain(workshop.paths, versions, progress)
    parts = ("package/etcd-server", "rootfs/training")
    packages, root = problems_of(lambda: toolchain.ensure(*parts), HostError)
    assert (packages.path, root.path) == ("packages", "rootfs/training")
    assert "sudo apt-get install --no-install-recommends etcd-server mmdebstrap" in packages.fix


def test_a_cache_that_cannot_be_written_is_reported(toolchain: Toolchain, workshop: Workshop) -> None:
    workshop.paths.cache.parent.mkdir(exist_ok=True)
    workshop.paths.cache.symlink_to("/proc/1/map_files")
    with pytest.raises(HostError, match="TRAINYARD_CACHE"):
        toolchain.ensure("binary/tool")


def test_a_chart_is_copied_without_missing_dependencies(toolchain: Toolchain, workshop: Workshop) -> None:
    chart = workshop.module / "charts/tool"
    (chart / "templates").mkdir(parents=True)
    (chart / "templates/a.yaml").write_text("kind: A\n")
    (chart / "Chart.yaml").write_text("name: tool\ndependencies:\n- name: lws\n  version: 0.8.0\n")
    toolchain.ensure("chart/tool")
    copy = toolchain.path("chart/tool")
    assert (copy / "templates/a.yaml").read_text() == "kind: A\n"
    assert (copy / "Chart.yaml").read_text() == "name: tool\ndependencies: []\n"
    assert (workshop.paths.bin.parent / "charts/tool").resolve() == copy


def test_an_image_holds_the_program_under_the_charts_name(toolchain: Toolchain) -> None:
    toolchain.ensure("image/tool")
    assert toolchain.image("tool") == "example.test/tool:v1.2.3"
    with tarfile.open(toolchain.path("image/tool")) as archive:
        index = json.loads(content_of(archive, "index.json"))
        names = [item["annotations"]["io.containerd.image.name"] for item in index["manifests"]]
        layer = json.loads(content_of(archive, "manifest.json"))[0]["Layers"][0]
        with tarfile.open(fileobj=io.BytesIO(content_of(archive, layer))) as files:
            assert files.getmember("manager").mode == 0o755
            assert files.getmember("tmp").mode == 0o1777
            assert "etc/ssl/certs/ca-certificates.crt" in files.getnames()
    assert names == ["example.test/tool:v1.2.3"]


def test_the_training_image_has_a_tag_for_each_code(toolchain: Toolchain, workshop: Workshop) -> None:
    before = toolchain.image("training")
    (workshop.paths.repository / "training/src/trainyard_train/__pycache__").mkdir()
    (workshop.paths.repository / "training/src/trainyard_train/__pycache__/train.pyc").write_text("x")
    (workshop.paths.repository / "training/src/trainyard_train.egg-info").mkdir()
    (workshop.paths.repository / "training/src/trainyard_train.egg-info/PKG-INFO").write_text("x")
    (workshop.paths.repository / "training/images/README.md").write_text("x")
    (workshop.paths.repository / "training/images/torch/Dockerfile").write_text("RUN x\nENV PATH=/bin\n")
    assert next_run(toolchain).image("training") == before
    names = [before]
    for changed in (
        "training/src/trainyard_train/train.py",
        "training/configs/digits.yaml",
        "training/images/torch/packages.txt",
        "training/images/torch/customize.sh",
        "training/images/torch/Dockerfile",
        "requirements/training.txt",
    ):
        (workshop.paths.repository / changed).write_text("ENV PATH=/other\n")
        names.append(next_run(toolchain).image("training"))
    assert len(set(names)) == len(names)
    assert len(names[-1].removeprefix("trainyard.local/training:")) == 12


def test_programs_are_linked_for_path_and_a_wheel_uses_its_environment(
    toolchain: Toolchain, workshop: Workshop
) -> None:
    toolchain.ensure("binary/tool")
    assert (workshop.paths.bin / "tool").resolve() == toolchain.path("binary/tool")
    host = (workshop.paths.bin / "pulumi-language-python").read_text()
    start = f"{workshop.paths.venv}/bin/python -P {workshop.paths.repository}/trainyard_start.py"
    assert host == f'#!/bin/sh\nexec {start} engine.language_host "$@"\n'
    assert not workshop.paths.venv.exists()
    (workshop.paths.repository.parent / "trainyard.pth").touch()
    toolchain.ensure("binary/tool")
    assert workshop.paths.venv.readlink() == Path(sys.prefix)


def test_the_official_language_host_is_linked_if_there(toolchain: Toolchain, workshop: Workshop) -> None:
    workshop.install("pulumi-language-python", "true")
    toolchain.ensure("binary/tool")
    assert (workshop.paths.bin / "pulumi-language-python").resolve() == (
        workshop.machine / "pulumi-language-python"
    )


def test_the_engines_passphrase_is_made_once_for_its_owner(toolchain: Toolchain, workshop: Workshop) -> None:
    first = toolchain.environment()
    second = toolchain.environment()
    passphrase = workshop.paths.engine / "passphrase"
    assert first["PULUMI_CONFIG_PASSPHRASE_FILE"] == str(passphrase)
    assert passphrase.stat().st_mode & 0o777 == 0o600
    assert len(passphrase.read_text()) > 30
    assert first == second
    assert first["PATH"].startswith(f"{workshop.paths.bin}:")
    assert workshop.paths.engine.stat().st_mode & 0o077 == 0


def test_of_two_first_commands_at_once_one_creates_the_passphrase(
    toolchain: Toolchain, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    passphrase = workshop.paths.engine / "passphrase"

    def beside_another(_num_bytes: int) -> str:
        passphrase.write_text("of the other command")
        return "of this one"

    monkeypatch.setattr("secrets.token_urlsafe", beside_another)
    toolchain.environment()
    assert passphrase.read_text() == "of the other command"
    assert [each.name for each in passphrase.parent.glob("*passphrase*")] == ["passphrase"]


def test_artifacts_that_only_tests_need_are_made_only_for_them(toolchain: Toolchain) -> None:
    wanting = next_run(toolchain, test_packages={"nfs-server": {"provides": "no-such-server"}})
    assert steps(wanting, "package/shell") == {"packages": (Action.PRESENT, "1 Debian packages")}
    assert steps(wanting, "test-package/nfs-server") == {
        "test-packages": (Action.INSTALL, "by apt-get: nfs-server")
    }
