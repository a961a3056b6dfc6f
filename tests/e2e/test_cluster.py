"""The embedded cluster with its real processes: nodes, services, kills, preemptions, volumes and removal.

It needs root and the toolchain, takes some three minutes, and has a separate name, state folder and ranges.
"""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

import psutil
import pytest

from engine.paths import Paths
from engine.progress import for_stream
from infra.clients.kubernetes import ApiServer, Object
from infra.errors import HostError, TrainyardError
from local.cluster import cgroups, volumes
from local.cluster.cluster import EmbeddedCluster
from local.cluster.commands import program, run
from local.cluster.config import ClusterConfig, NodeConfig, Taint
from local.cluster.events import read_events
from local.cluster.images import read_archive
from local.cluster.network import CONTROL
from local.cluster.objects import node_path
from local.cluster.preflight import BINARIES
from local.cluster.site import ClusterSite
from local.cluster.volumes import GIB, BoundedVolume
from local.toolchain import Toolchain, load_versions
from tests.e2e.stack import BARE
from tests.objects import thing
from tests.processes import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

SPOT = Taint(key="trainyard.dev/spot", value="true", effect="NoSchedule")
PODS = "/api/v1/namespaces/default/pods"
SERVER = "exec python3 -m http.server 8080"
CALL = (
    "import time, urllib.request\n"
    "for _ in range(1500):\n"
    "    try: urllib.request.urlopen('http://server.default.svc.cluster.local', timeout=2); break\n"
    "    except OSError: time.sleep(0.2)\n"
    "else: raise SystemExit(1)"
)
NOTED = "trap 'echo warned > /data/warned; exit 0' TERM; while :; do sleep 0.1; done"


def node(name: str, **others: Any) -> NodeConfig:
    pool = name.rsplit("-", 1)[0]
    labels = {"trainyard.dev/pool": pool}
    return NodeConfig(name=name, pool=pool, labels=labels, images=("training",), **others)


SYSTEM = node("system-0")
SPOTS = tuple(node(f"spot-{index}", gpus=2, taints=(SPOT,)) for index in range(2))


def new_cluster(state: Path, *nodes: NodeConfig) -> EmbeddedCluster:
    paths = Paths(cache=Paths.from_environment().cache, state=state)
    versions, progress = load_versions(), for_stream(sys.stderr)
    config = ClusterConfig(
        name=BARE,
        kubernetes_version=versions.kubernetes,
        nodes=nodes or (SYSTEM, *SPOTS),
        pod_cidr="10.221.0.0/16",
        service_cidr="10.222.0.0/16",
        node_cidr="10.223.0.0/24",
        data_dir=str(paths.cluster_data(BARE)),
        volume_sizes={"bounded": 1},
    )
    toolchain = Toolchain(paths, versions, progress)
    toolchain.ensure("image/pause", "image/training", *(f"binary/{name}" for name in BINARIES))
    return EmbeddedCluster(config, paths=paths, toolchain=toolchain, progress=progress)


def census(state: Path) -> dict[str, object]:
    """Return the traces of a cluster on the host, except for its data."""
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    arguments = [" ".join(p.info["cmdline"] or []) for p in psutil.process_iter(["cmdline"])]
    links = [link["ifname"] for link in json.loads(run(program("ip"), "-json", "link"))]
    groups = [path for top in cgroups.hierarchies() for path in top.glob(f"{cgroups.ROOT}/{BARE}")]
    return {
        "processes": [line for line in arguments if str(state) in line and "pytest" not in line],
        "mounts": [line for line in mounts if str(state) in line],
        "links": [name for name in links if BARE in name],
        "cgroups": groups,
        "rules": run(program("nft"), "list", "ruleset"),
        "run": (state / BARE / "run").exists(),
    }


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def cluster(ranges: None, state: Path) -> Iterator[EmbeddedCluster]:
    cluster = new_cluster(state)
    cluster.up()
    yield cluster
    cluster.down(purge=True)


@pytest.fixture
def site(cluster: EmbeddedCluster) -> ClusterSite:
    return cluster._site()


@pytest.fixture
def api(site: ClusterSite) -> ApiServer:
    return site.api


@pytest.fixture
def pods(api: ApiServer, cluster: EmbeddedCluster) -> "Iterator[Pods]":
    made = Pods(api, cluster)
    yield made
    made.remove()


class Pods:
    """Creates pods on given nodes, and deletes them after the test."""

    def __init__(self, api: ApiServer, cluster: EmbeddedCluster) -> None:
        self.api = api
        self.image = read_archive(cluster.toolchain.path("image/training")).names[0]
        self.data = cluster.config.data_dir
        self.names: list[str] = []

    def run(self, name: str, node: str, *command: str, grace_seconds: int = 10) -> None:
        container = {
            "name": "main",
            "image": self.image,
            "command": list(command),
            "securityContext": {"runAsUser": 0},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }
        spec = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": grace_seconds,
            "nodeName": node,
            "tolerations": [{"key": SPOT.key, "operator": "Exists"}],
            "containers": [container],
            "volumes": [{"name": "data", "hostPath": {"path": self.data}}],
        }
        self.api.apply(f"{PODS}/{name}", thing("v1", "Pod", name, labels={"app": name}, spec=spec))
        self.names.append(name)

    def serve(self, name: str, node: str) -> Object:
        """Create a Service with one pod."""
        self.run(name, node, "/bin/sh", "-c", SERVER)
        spec = {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8080}]}
        path = f"/api/v1/namespaces/default/services/{name}"
        made: Object = self.api.apply(path, thing("v1", "Service", name, spec=spec))
        return made

    def phase(self, name: str) -> str:
        return str(self.api.get(f"{PODS}/{name}")["status"]["phase"])

    def wait(self, name: str, phase: str) -> None:
        wait_for(lambda: self.phase(name) == phase, lambda: str(self.api.get(f"{PODS}/{name}")["status"]))

    def remove(self) -> None:
        for name in self.names:
            self.api.delete(f"{PODS}/{name}", {"gracePeriodSeconds": "0"})


def wait_until_up(cluster: EmbeddedCluster) -> None:
    """Wait until the cluster is up, since heartbeats may be late on a busy host."""
    wait_for(lambda: cluster.status().state == "up", lambda: str(cluster.status()))


def machines(cluster: EmbeddedCluster) -> dict[str, float]:
    """Return the command line → start time of every process of the cluster."""
    run_folder = str(cluster.layout.run)
    return {
        " ".join(process.info["cmdline"]): process.info["create_time"]
        for process in psutil.process_iter(["cmdline", "create_time"])
        if any(run_folder in argument for argument in process.info["cmdline"] or [])
    }


def kill(cluster: EmbeddedCluster, *command: str) -> None:
    [process] = [
        process
        for process in psutil.process_iter(["cmdline"])
        if all(
            part in " ".join(process.info["cmdline"] or []) for part in (str(cluster.layout.run), *command)
        )
        and process.info["cmdline"][0].endswith(command[0])
    ]
    process.kill()


def test_every_node_is_ready_with_its_declared_properties(cluster: EmbeddedCluster, api: ApiServer) -> None:
    wait_until_up(cluster)
    for declared in cluster.config.nodes:
        found = api.get(node_path(declared.name))
        assert found["metadata"]["labels"]["trainyard.dev/pool"] == declared.pool
        assert int(found["status"]["allocatable"].get("nvidia.com/gpu", 0)) == declared.gpus
        assert [taint["key"] for taint in found["spec"].get("taints", [])] == [
            taint.key for taint in declared.taints
        ]


def test_a_pod_on_every_node_reaches_a_service_by_its_name(cluster: EmbeddedCluster, pods: Pods) -> None:
    pods.serve("server", "system-0")
    for declared in cluster.config.nodes:
        pods.run(f"caller-{declared.name}", declared.name, "python3", "-c", CALL)
    for declared in cluster.config.nodes:
        pods.wait(f"caller-{declared.name}", "Succeeded")


def test_the_control_plane_reaches_a_service_as_webhooks_need(site: ClusterSite, pods: Pods) -> None:
    address = pods.serve("hook", "spot-0")["spec"]["clusterIP"]
    pods.wait("hook", "Running")
    script = f"import urllib.request; print(urllib.request.urlopen('http://{address}', timeout=10).status)"
    inside = (program("nsenter"), f"--net={site.network.namespace(CONTROL)}", sys.executable, "-c", script)

    wait_for(lambda: subprocess.run(inside, capture_output=True, check=False).returncode == 0)


def test_logs_come_through_the_api(api: ApiServer, pods: Pods) -> None:
    pods.run("writer", "spot-1", "/bin/sh", "-c", "echo hello")
    pods.wait("writer", "Succeeded")
    assert api.read(f"{PODS}/writer/log") == b"hello\n"


def test_a_second_up_changes_nothing(cluster: EmbeddedCluster, api: ApiServer) -> None:
    processes, node = machines(cluster), api.get(node_path("spot-0"))
    cluster.up()
    assert machines(cluster) == processes
    assert api.get(node_path("spot-0"))["metadata"]["uid"] == node["metadata"]["uid"]
    assert api.get(node_path("spot-0"))["spec"] == node["spec"]


@pytest.mark.parametrize(
    "command",
    [
        ("kubelet", "spot-0"),
        ("containerd", "spot-0/containerd.toml"),
        ("kube-apiserver",),
        ("etcd",),
        ("unshare", "spot-0/machine.json"),
        ("unshare", "control/machine.json"),
    ],
    ids=["kubelet", "containerd", "API server", "etcd", "node", "control plane"],
)
def test_up_recovers_from_the_death_of(
    command: tuple[str, ...], cluster: EmbeddedCluster, api: ApiServer, pods: Pods
) -> None:
    kill(cluster, *command)
    cluster.up()
    wait_until_up(cluster)
    pods.run("after", "spot-0", "/bin/true")
    pods.wait("after", "Succeeded")


@pytest.mark.parametrize("seconds", [0.3, pytest.param(1.5, marks=pytest.mark.soak), 4.0])
def test_up_recovers_from_an_up_that_was_killed(seconds: float, cluster: EmbeddedCluster) -> None:
    cluster.down()
    script = f"from tests.e2e.test_cluster import *; new_cluster(Path({str(cluster.paths.state)!r})).up()"
    dying = subprocess.Popen([sys.executable, "-c", script], cwd=cluster.paths.repository)
    wait_for(cluster.layout.version.exists)
    time.sleep(seconds)
    dying.send_signal(signal.SIGKILL)
    dying.wait()
    cluster.up()
    wait_until_up(cluster)


def test_a_preemption_notice_lets_a_pod_end_before_its_node_is_deleted(
    cluster: EmbeddedCluster, pods: Pods, api: ApiServer
) -> None:
    warned = Path(cluster.config.data_dir, "warned")
    pods.run("worker", "spot-0", "/bin/sh", "-c", NOTED)
    pods.wait("worker", "Running")
    record = cluster.preempt("spot-0", notice_seconds=12)
    assert warned.read_text() == "warned\n"
    assert record.seconds("notice", "killed") > 11.9
    assert record.seconds("drained", "killed") > 0
    assert api.find(node_path("spot-0")) is None
    cluster.restore("spot-0")
    wait_until_up(cluster)
    assert read_events(cluster.layout.events)[: len(record.events)] == list(record.events)


def test_without_notice_pods_fail_soon_after_it(cluster: EmbeddedCluster, pods: Pods, api: ApiServer) -> None:
    pods.run("worker", "spot-1", "/bin/sh", "-c", NOTED)
    pods.wait("worker", "Running")
    record = cluster.preempt("spot-1", notice_seconds=None)
    assert record.pods == ("default/worker",)
    assert record.seconds("killed", "pods-failed") < 40, "when Kubernetes itself would see to them"
    status = api.get(f"{PODS}/worker")["status"]
    assert status["phase"] == "Failed"
    assert "DisruptionTarget" in [condition["type"] for condition in status["conditions"]]
    assert {node.name: node.state for node in cluster.status().nodes}["spot-1"] == "gone"
    cluster.restore("spot-1")
    wait_until_up(cluster)


def test_only_a_running_node_can_be_preempted(cluster: EmbeddedCluster) -> None:
    with pytest.raises(TrainyardError, match="system-0, spot-0, spot-1"):
        cluster.preempt("spot-7", notice_seconds=None)


def test_nodes_are_added_and_removed_in_place(cluster: EmbeddedCluster, api: ApiServer) -> None:
    old = cluster.config
    changed = SPOTS[0].model_copy(update={"gpus": 4, "labels": {"trainyard.dev/pool": "other"}})
    new = old.model_copy(update={"nodes": (SYSTEM, changed, node("spot-9"))})
    before = machines(cluster)
    cluster.config = new
    cluster.up()
    found = {item["metadata"]["name"]: item for item in api.items("/api/v1/nodes")}
    assert set(found) == {"system-0", "spot-0", "spot-9"}
    assert found["spot-0"]["metadata"]["labels"]["trainyard.dev/pool"] == "other"
    assert found["spot-0"]["status"]["capacity"]["nvidia.com/gpu"] == "4"
    retained = {line: start for line, start in before.items() if "spot-1" not in line}
    assert retained.items() <= machines(cluster).items()
    cluster.config = old
    cluster.up()
    wait_until_up(cluster)


def test_a_volume_holds_no_more_than_its_size(cluster: EmbeddedCluster, pods: Pods) -> None:
    for name, phase in {"first": "Succeeded", "second": "Failed"}.items():
        pods.run(name, "spot-0", "fallocate", "--length=700M", f"/data/bounded/{name}")
        pods.wait(name, phase)
    for file in Path(cluster.config.data_dir, "bounded").iterdir():
        file.unlink()


def test_two_at_once_are_refused(cluster: EmbeddedCluster) -> None:
    with cluster._lock(), pytest.raises(TrainyardError, match="another process is changing it"):
        new_cluster(cluster.paths.state).up()


def test_a_range_that_the_host_uses_is_refused_at_once(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    other = new_cluster(tmp_path)
    other.config = cluster.config.model_copy(update={"name": "other"})
    with pytest.raises(HostError, match=r"10\.223\.0\.0/24 is in use on this host by ty-e2e"):
        other.up()
    assert list(tmp_path.iterdir()) == []


def test_a_volume_grows_while_the_cluster_is_down(cluster: EmbeddedCluster) -> None:
    folder = Path(cluster.config.data_dir, "bounded")
    (folder / "checkpoint").write_text("weights")
    larger = BoundedVolume(folder, size_gib=2)
    assert "grows when the cluster is taken down" in larger.attach(nodes_run=True)
    cluster.down()
    assert not folder.joinpath("checkpoint").exists()
    assert larger.attach(nodes_run=False) == ""
    assert (folder / "checkpoint").read_text() == "weights"
    assert shutil.disk_usage(folder).total > 1.8 * GIB
    assert "does not shrink" in BoundedVolume(folder, size_gib=1).attach(nodes_run=False)


def test_a_volume_mounted_elsewhere_does_not_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That mount would write the old size over the new one; a node's namespace outlives its processes."""
    monkeypatch.setattr(volumes, "RELEASE_SECONDS", 0.2)
    small, large = (BoundedVolume(tmp_path / "bounded", size_gib=size) for size in (1, 2))
    assert small.attach(nodes_run=False) == ""
    other = subprocess.Popen([program("unshare"), "-m", "sh", "-c", "echo; exec sleep 60"], stdout=PIPE)
    assert other.stdout and other.stdout.readline()
    small.detach()
    try:
        assert "grows when the cluster is taken down" in large.attach(nodes_run=False)
    finally:
        other.kill()
        other.communicate()
        large.detach()
    run(program("e2fsck"), "-f", "-n", str(large.image))
    monkeypatch.undo()
    assert large.attach(nodes_run=False) == ""
    large.detach()
    run(program("e2fsck"), "-f", "-n", str(large.image))


def test_down_leaves_nothing_but_the_data(cluster: EmbeddedCluster) -> None:
    cluster.up()
    retained = Path(cluster.config.data_dir, "checkpoint")
    retained.touch()
    cluster.down()
    remaining = census(cluster.paths.state)
    assert remaining.pop("rules") == run(program("nft"), "list", "ruleset")
    assert not any(remaining.values()), remaining
    assert retained.exists()
    cluster.down(purge=True)
    assert not retained.exists()
