"""The local stack as a whole, by the command line: up, looked at, changed and changed back."""

import base64
import json
import os
import re
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from engine.paths import REPOSITORY
from rehearsal.leaks import known_in, leaks_in, lines_of
from tests.e2e.guide import run_by
from tests.e2e.machine import processes_of
from tests.e2e.manifests import NAMESPACE, container, pod
from tests.e2e.stack import NAME, LocalStack, patched
from tests.tables import table

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

OPERATED = ("jobset-system", "kubeflow-system", "kueue-system", "mpi-operator", "trainyard-storage")
"""Namespaces with one Deployment."""
ROUND_TRIP = """
import boto3, os
store, bucket, text = boto3.client("s3"), "checkpoints", os.urandom(1 << 20)
own = {"Bucket": bucket, "Key": "checkpoints/research/trial/step-1"}
store.put_object(**own, Body=text, Tagging="trainyard.dev/superseded=true")
assert store.get_object(**own)["Body"].read() == text
[found] = store.list_objects_v2(Bucket=bucket, Prefix="checkpoints/research/trial/")["Contents"]
assert found["Size"] == len(text)
assert store.list_buckets()["Buckets"] == []

def refused(name, ask):
    try:
        print(name, "done", ask())
    except store.exceptions.ClientError as error:
        print(name, error.response["Error"]["Code"])

refused("read", lambda: store.get_object(Bucket=bucket, Key="checkpoints/platform/step-1"))
refused("bucket", lambda: store.create_bucket(Bucket="another"))
stranger = boto3.client("s3", aws_access_key_id="other", aws_secret_access_key="wrong")
refused("stranger", stranger.list_buckets)
"""


def test_up_makes_the_nodes_and_the_operators_that_the_stack_declares(stack: LocalStack) -> None:
    nodes = {node["metadata"]["name"]: node for node in stack.get("nodes")["items"]}
    assert set(nodes) == {"system-0", "on-demand-0", "on-demand-1", "spot-0", "spot-1"}
    assert nodes["spot-0"]["status"]["allocatable"]["nvidia.com/gpu"] == "1"
    assert nodes["spot-0"]["metadata"]["labels"]["trainyard.dev/simulated"] == "true"
    for namespace in OPERATED:
        [deployment] = stack.get("deployments", "-n", namespace)["items"]
        assert deployment["status"].get("readyReplicas") == 1
    assert stack.names("clusterqueues") == ["gpu", "small"]
    runtimes = ["mpi-distributed", "mpi-tcp", "torch-distributed", "torch-tcp"]
    assert stack.names("clustertrainingruntimes") == runtimes


def test_status_shows_every_node_and_that_there_is_no_job(stack: LocalStack) -> None:
    shown = stack.trainyard("status").out
    for name in ("system-0", "on-demand-0", "on-demand-1", "spot-0", "spot-1"):
        assert f"{name} " in shown
    assert shown.count("ready") == 5
    assert "no jobs" in shown


def test_pulumi_and_kubectl_work_by_hand(stack: LocalStack) -> None:
    written = stack.file.read_bytes()
    printed = run_by(__file__, REPOSITORY / "docs/commands.md").text
    preview = stack.by_hand(printed.replace("-s local", f"-s {NAME}"))
    assert stack.file.read_bytes() == written
    assert "unchanged" in preview.out
    assert not [word for word in ("update", "create", "delete", "replace") if f"to {word}" in preview.out], (
        preview.out
    )
    assert "warning" not in preview.text
    assert [name for name in stack.names("nodes") if f"{name} " not in preview.out] == []
    outputs = json.loads(stack.by_hand(f"pulumi stack output --json -s {NAME}").out)
    assert outputs["endpoint"] == "https://10.233.0.1:6443"
    assert outputs["kubeconfig"] == "[secret]"


def test_a_second_up_changes_nothing_and_takes_away_what_pulumi_by_hand_has_left(stack: LocalStack) -> None:
    processes = stack.kubectl("get", "pods", "-A", "-o", "jsonpath={.items[*].metadata.uid}")
    again = stack.trainyard("up")
    assert list(again.changes) == ["unchanged"]
    assert stack.kubectl("get", "pods", "-A", "-o", "jsonpath={.items[*].metadata.uid}") == processes


def test_a_teams_keys_open_its_own_folder_of_the_object_store_alone(stack: LocalStack) -> None:
    main = container(stack.training_image, ["python3", "-c", ROUND_TRIP])
    main["envFrom"] = [{"secretRef": {"name": "object-store"}}]
    stack.apply(pod("round-trip", main))
    stack.wait_until_pod_ends("round-trip")
    output = stack.kubectl("logs", "-n", NAMESPACE, "round-trip")
    answers = dict(line.rsplit(" ", 1) for line in output.splitlines())
    assert stack.get("pod", "-n", NAMESPACE, "round-trip")["status"]["phase"] == "Succeeded", output
    denied = dict.fromkeys(("read", "bucket"), "AccessDenied")  # and more in `test_store_teams`
    assert answers == {**denied, "stranger": "InvalidAccessKeyId"}, output
    folder = stack.data / "object-store" / "checkpoints" / "checkpoints"
    stored = folder / "research" / "trial" / "step-1"
    assert stored.stat().st_size == 1 << 20
    stack.kubectl("delete", "pod", "-n", NAMESPACE, "round-trip")


def test_nothing_of_the_cluster_listens_on_the_host(stack: LocalStack) -> None:
    ours = {process.pid for process in processes_of(stack.folder)}
    assert len(ours) > 20
    open_here = [each for each in psutil.net_connections("inet") if each.status == psutil.CONN_LISTEN]
    assert not [each for each in open_here if each.pid in ours]


@pytest.fixture(scope="module")
def secrets(stack: LocalStack) -> Iterator[dict[str, str]]:
    """What must be nowhere in plain text."""
    kubeconfig = yaml.safe_load((stack.run / "admin.kubeconfig").read_text())
    data = stack.get("secret", "-n", "trainyard-storage", "object-store")["data"]
    key = kubeconfig["users"][0]["user"]["client-key-data"]
    yield {
        "administrator's key": base64.b64decode(key).decode().splitlines()[1],
        "access key": base64.b64decode(data["AWS_ACCESS_KEY_ID"]).decode(),
        "secret key": base64.b64decode(data["AWS_SECRET_ACCESS_KEY"]).decode(),
        "passphrase": (stack.state / "pulumi" / "passphrase").read_text(),
    }


def test_no_secret_is_in_the_engines_state_or_in_the_output_of_commands(
    stack: LocalStack, secrets: dict[str, str]
) -> None:
    engine = stack.state / "pulumi"
    files = [
        path for path in engine.rglob("*") if path.is_file() and not path.is_relative_to(engine / "home")
    ]
    files += [path for path in stack.folder.glob("*-*.*") if path.suffix in {".out", ".err"}]
    assert len(files) > 5
    assert leaks_in(lines_of(path for path in files if path.name != "passphrase"), secrets) == []
    assert known_in((engine / "passphrase").read_text(), secrets) == {"passphrase"}


def test_no_secret_is_in_a_log_or_in_a_command_line(stack: LocalStack, secrets: dict[str, str]) -> None:
    logs = [path for path in _files_below(stack.run) if path.suffix == ".log"]
    assert len(logs) > 10
    commands = list(Path("/proc").glob("[0-9]*/cmdline"))
    for path in [*logs, *commands]:
        try:
            text = path.read_bytes().decode(errors="replace")
        except OSError:  # a process that has ended
            continue
        assert known_in(text, secrets) == set(), path


def test_what_holds_a_secret_is_readable_by_its_owner_only(stack: LocalStack) -> None:
    for folder in (stack.state / "pulumi", stack.run):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder
    keys = [path for path in _files_below(stack.run) if path.name.endswith((".key", "kubeconfig"))]
    assert len(keys) > 10
    for path in [*keys, stack.state / "pulumi" / "passphrase"]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def _files_below(folder: Path) -> Iterator[Path]:
    """Return all files; unlike `rglob`, pass over folders that a running node removes meanwhile."""
    return (Path(parent) / name for parent, _, names in os.walk(folder) for name in names)


def environments(stack: LocalStack, namespace: str = NAMESPACE) -> set[str]:
    """Return the claims of training environments in a namespace."""
    return {each for each in stack.names("pvc", "-n", namespace) if each.startswith("training-env-")}


def test_jobs_keep_their_training_environment_when_the_stack_gets_another_one_and_the_first_again(
    stack: LocalStack, tmp_path: Path
) -> None:
    stack.apply(pod("ended", container(stack.training_image, ["true"])))
    stack.wait_until_pod_ends("ended")
    first = environments(stack)
    stack.environment["TRAINYARD_TRAINING_ENV"] = str(tmp_path)
    up = stack.start("up")
    up.prints("created +core/v1:PersistentVolumeClaim")
    up.signal(signal.SIGKILL)
    up.end(-9)
    stack.trainyard("up")
    second = environments(stack) - first
    assert len(second) == len(first) == 1
    runtime = stack.kubectl("get", "clustertrainingruntime", "torch-tcp", "-o", "yaml")
    assert second.pop() in runtime and not [each for each in first if each in runtime]
    del stack.environment["TRAINYARD_TRAINING_ENV"]
    stack.trainyard("up")
    stack.kubectl("delete", "pvc", *first, "-n", "team-platform", "--wait=false")
    # The pod that takes code has the claim; the next one waits for it.
    stack.kubectl("delete", "pod", "-n", "team-platform", "-l", "app.kubernetes.io/name=uploads")
    stack.wait_until(lambda: not first & environments(stack, "team-platform"), "the claim's end")
    stack.trainyard("up")
    assert environments(stack) == first == environments(stack, "team-platform")
    stack.kubectl("delete", "pod", "-n", NAMESPACE, "ended")


def test_a_change_of_the_stack_file_touches_what_it_names_and_nothing_else(stack: LocalStack) -> None:
    uids = {node["metadata"]["name"]: node["metadata"]["uid"] for node in stack.get("nodes")["items"]}
    before = stack.get("clusterqueue", "gpu")["metadata"]["generation"]
    changes = {"queues[0].flavors[0].quota": 1, "pools[2].nodes": 3}  # and one more team
    with stack.declared(patched({**changes, "teams[3]": {"name": "vision", "queue": "gpu"}})):
        done = stack.trainyard("up")
    # The volume of the training environment carries the digest of what it holds.
    changed = [re.sub(r"-[0-9a-f]{8}$", "", name) for name in done.changed]
    of_teams = [name for name in changed if "Queue" in name or "team-" in name]
    assert of_teams == table(__file__, "changed")
    restarted = {name for name in changed if name.startswith("apps/v1:") and "team-vision" not in name}
    assert not restarted, "no operator restarts"
    queue = stack.get("clusterqueue", "gpu")
    assert queue["metadata"]["generation"] == before + 1
    [group] = queue["spec"]["resourceGroups"]
    assert group["flavors"][0]["resources"][0]["nominalQuota"] == "1"
    assert stack.get("localqueue", "-n", "team-vision", "vision")["spec"]["clusterQueue"] == "gpu"
    now = {node["metadata"]["name"]: node["metadata"]["uid"] for node in stack.get("nodes")["items"]}
    assert now.keys() - uids.keys() == {"spot-2"}
    assert uids.items() <= now.items()


def test_what_is_removed_from_the_stack_file_is_deleted(stack: LocalStack) -> None:
    stack.standing = ()
    stack.declare()
    back = stack.trainyard("up")
    assert "trainyard:local:EmbeddedCluster trial" in back.changed
    assert "spot-2" not in stack.names("nodes")
    assert not {"team-vision", "team-interns"} & set(stack.names("namespaces"))
    assert "training-operator" not in stack.names("deployments", "-A")
    assert not {"pytorchjobs.kubeflow.org", "xgboostjobs.kubeflow.org"} & set(stack.names("crds"))
    assert "mpijobs.kubeflow.org" in stack.names("crds")
    assert list(stack.trainyard("up").changes) == ["unchanged"]
