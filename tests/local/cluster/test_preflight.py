"""The preflight of an embedded cluster: what the host lacks is reported before anything starts."""

from pathlib import Path

import pytest

from infra.errors import ExitCode, HostError, Problem, TrainyardError
from local.cluster import preflight, privileges
from local.cluster.config import ClusterConfig, NodeConfig
from local.cluster.layout import Layout

CONFIG = ClusterConfig(
    name="c",
    kubernetes_version="v1.35.4",
    nodes=(NodeConfig(name="spot-0", pool="spot", images=("training",)),),
    data_dir="/data",
)

PACKET_QUEUE = preflight._packet_queue


class IncompleteArtifacts:
    """A fake toolchain without the artifacts in `missing`; each program prints kubelet's version."""

    def __init__(self, folder: Path, *missing: str, version: str = "v1.35.4") -> None:
        self.missing = missing
        self.program = folder / "program"
        self.program.write_text(f"#!/bin/sh\necho Kubernetes {version}\n")
        self.program.chmod(0o755)

    def path(self, name: str) -> Path:
        if name in self.missing:
            raise HostError([Problem(name, "missing", "made", "make it")])
        return self.program


@pytest.fixture(autouse=True)
def suitable_host(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Replace the checks that depend on the host; each test puts one back that fails."""
    limit = tmp_path_factory.mktemp("proc") / "max_user_instances"
    limit.write_text("1000000\n")
    for name in ("missing_privileges", "_programs", "_kernel"):
        monkeypatch.setattr(preflight, name, list)
    monkeypatch.setattr(preflight, "_packet_queue", lambda _: [])
    monkeypatch.setattr(preflight, "host_routes", lambda: [("192.0.2.0/24", "eth0")])
    monkeypatch.setattr(preflight, "FREE_GIB", 0)
    monkeypatch.setattr(preflight, "INOTIFY_LIMIT", limit)


def problems(
    tmp_path: Path, config: ClusterConfig = CONFIG, artifacts: IncompleteArtifacts | None = None
) -> list[Problem]:
    try:
        preflight.check(
            config, Layout(tmp_path / "c" / "run"), artifacts or IncompleteArtifacts(tmp_path), "ty-c"
        )
    except HostError as error:
        assert error.exit_code is ExitCode.HOST
        return list(error.problems)
    return []


def test_a_suitable_host_has_no_problem(tmp_path: Path) -> None:
    assert problems(tmp_path) == []


def test_all_missing_parts_are_reported_at_once(tmp_path: Path) -> None:
    missing = ("binary/kubelet", "binary/coredns", "image/training", "image/pause")
    found = problems(tmp_path, artifacts=IncompleteArtifacts(tmp_path, *missing))
    assert {problem.path for problem in found} == set(missing)


def test_binaries_of_another_version_are_refused(tmp_path: Path) -> None:
    [problem] = problems(tmp_path, artifacts=IncompleteArtifacts(tmp_path, version="v1.34.0"))
    assert (problem.path, problem.allowed) == ("cluster.kubernetesVersion", "v1.34.0")


def test_a_free_range_is_named_for_a_second_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    routes = [("192.0.2.0/24", "eth0"), ("10.89.0.0/24", "ty-local"), ("10.89.1.0/24", "ty-more")]
    monkeypatch.setattr(preflight, "host_routes", lambda: routes)
    monkeypatch.setattr(preflight, "run_folders", lambda: {"ty-local": Path("/state/local/run")})
    [problem] = problems(tmp_path)
    assert problem.fix == "write 10.89.2.0/24, or take down the cluster whose files are in /state/local"


def test_a_cluster_with_anothers_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's interface has the cluster's name, so a second one would remove the first one's link."""
    monkeypatch.setattr(preflight, "host_routes", lambda: [("10.89.0.0/24", "ty-c")])
    monkeypatch.setattr(preflight, "run_folders", lambda: {"ty-c": Path("/elsewhere/c/run")})
    [problem] = problems(tmp_path)
    assert (problem.path, problem.got) == ("name", "c, of a cluster that is up")
    assert problem.fix.endswith("take down the cluster whose files are in /elsewhere/c")
    monkeypatch.setattr(preflight, "run_folders", lambda: {"ty-c": tmp_path / "c" / "run"})
    assert problems(tmp_path) == []


@pytest.mark.parametrize("folder", ["/run/data", "/var/log/data", "/var/lib/kubelet/data", "data"])
def test_a_data_folder_that_nodes_could_not_see_is_refused(tmp_path: Path, folder: str) -> None:
    found = problems(tmp_path, CONFIG.model_copy(update={"data_dir": folder}))
    assert {problem.path for problem in found} == {"cluster.dataDir"}


def test_a_run_of_another_layout_is_refused(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "c" / "run")
    layout.run.mkdir(parents=True)
    layout.version.write_text("0")
    [problem] = problems(tmp_path)
    assert (problem.path, problem.got) == (str(layout.run), "a run of layout 0")


def test_too_few_inotify_instances_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "limit"
    limit.write_text("128\n")
    monkeypatch.setattr(preflight, "INOTIFY_LIMIT", limit)
    monkeypatch.setattr(preflight, "inotify_instances_in_use", lambda: 100)
    assert problems(tmp_path) == []
    monkeypatch.setattr(preflight, "inotify_instances_in_use", lambda: 120)
    [problem] = problems(tmp_path)
    assert (problem.got, problem.allowed) == ("128, of which 120 are in use", "20 free ones")


def test_inotify_instances_of_every_process_are_counted(tmp_path: Path) -> None:
    for process, targets in {"1": ("anon_inode:inotify", "/dev/null"), "22": ("anon_inode:inotify",)}.items():
        (tmp_path / process / "fd").mkdir(parents=True)
        for number, target in enumerate(targets):
            (tmp_path / process / "fd" / str(number)).symlink_to(target)
    assert preflight.inotify_instances_in_use(tmp_path) == 2


def test_a_check_changes_nothing(tmp_path: Path) -> None:
    artifacts = IncompleteArtifacts(tmp_path)
    before = list(tmp_path.rglob("*"))
    problems(tmp_path, artifacts=artifacts)
    assert list(tmp_path.rglob("*")) == before


class TestPrivileges:
    """The real checks, in a process that lacks privileges or programs."""

    @pytest.fixture(autouse=True)
    def suitable_host(self) -> None:
        """Replace no check."""

    def test_every_missing_capability_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("os.geteuid", lambda: 0)
        monkeypatch.setattr(Path, "read_text", lambda _: "CapEff:\t0000000000000000\n")
        with pytest.raises(HostError) as raised:
            privileges.check_privileges()
        assert len(raised.value.problems) == len(privileges.CAPABILITIES)

    def test_a_missing_program_is_named_with_its_package(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("shutil.which", lambda *_, **__: None)
        fixes = {problem.fix for problem in preflight._programs()}
        assert "apt-get install etcd-server" in fixes


def test_a_kernel_that_queues_no_packets_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The NetworkPolicy agent needs it: without it no pod could connect to anything."""
    failure = Problem("unshare", "rules of nftables: no such file or directory (exit status 1)", "", "")

    def fails(*_: str) -> str:
        raise TrainyardError([failure])

    monkeypatch.setattr(preflight, "_packet_queue", PACKET_QUEUE)
    monkeypatch.setattr(preflight, "program", str)
    monkeypatch.setattr(preflight, "_version", lambda *_: [])
    monkeypatch.setattr(preflight, "run", lambda *argv: fails() if "--check" in argv else "v v1.35.4")
    [problem] = problems(tmp_path)
    assert (problem.path, problem.got) == ("kernel", failure.got)
    assert "modprobe" in problem.fix
