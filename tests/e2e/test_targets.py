"""The Kubernetes objects of every stack on a real API server, and the pods that one TrainJob becomes there.

The cluster runs the operators; nodes of the target are simulated, as in `test_topology`. Drivers and
definitions of clouds and vendors' charts are missing here: `UNSERVED` lists the kinds.
"""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
import yaml

from engine.paths import REPOSITORY
from infra.common import names
from infra.common.artifacts import LINKS
from infra.stackfile import Stack, load
from infra.targets.base import PoolSettings
from tests.e2e.guide import run_by
from tests.e2e.stack import Declaration, LocalStack
from tests.infra.golden import CASES, GOLDEN, assert_matches
from tests.infra.kubeconfigs import write_kubeconfig
from tests.infra.plan import Plan, plan, pools_of, stack_file
from tests.objects import thing
from tests.tables import table

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

JOB = REPOSITORY / "examples" / "trainjob.yaml"
REQUESTS = LINKS / "charts" / "provisioning-requests.yaml"
"""The definition that stacks with autoscaled pools have, which Kueue reads when it starts."""
NAMESPACE, NAME = "team-research", "example"
NODES = 2
ADVERTISED = table(__file__, "advertised")
UNSERVED = {
    "gcp": {"networking.gke.io/v1"},
    "azure": {"mellanox.com/v1alpha1", "nfd.k8s-sigs.io/v1alpha1"},
    "coreweave": {"compute.coreweave.com/v1alpha1"},
    "racks": {"compute.coreweave.com/v1alpha1", "resource.nvidia.com/v1beta1"},
    "onprem": {"mellanox.com/v1alpha1", "nv-ipam.nvidia.com/v1alpha1"},
}
"""Stack → API groups whose definitions are part of the cloud or of a vendor's chart; it may not grow."""
WORKLOADS = {"DaemonSet", "Deployment", "Job", "StatefulSet"}
"""Kinds that are created only as dry runs, since their images are missing here."""
DRIVER, CHANNELS = "compute-domain.nvidia.com", "compute-domain-default-channel.nvidia.com"
"""NVIDIA's driver of NVLink domains, and its class of devices: a node has a channel of the one it is in."""
STACKS_OWN = (
    "clustertrainingruntime, localqueue -A, clusterqueue, admissioncheck, provisioningrequestconfig,"
    " resourceflavor, topologies.kueue.x-k8s.io, storageclass, deviceclass, resourceslice,"
    " resourceclaimtemplate -A"
)
"""Objects that every stack has under the same names, or does not have."""


@dataclass(frozen=True)
class TargetHalf:
    """The Kubernetes objects and the pools of a stack."""

    name: str
    stack: Stack
    plan: Plan
    pools: Mapping[str, PoolSettings]

    @property
    def objects(self) -> list[Declaration]:
        kinds = [each for each in self.plan.resources if each.type.startswith("kubernetes:")]
        return [dict(each.inputs) for each in kinds if not each.type.startswith("kubernetes:helm.sh")]

    @property
    def preferred(self) -> str:
        """Return the first pool of a job; only it gets nodes, since Kueue could use others before."""
        return self.stack.queues[0].flavors[0].pool

    @property
    def num_nodes(self) -> int:
        """Return the job's number of nodes, which is 1 on development stacks."""
        return min(NODES, self.stack.pool(self.preferred).num_nodes)

    @property
    def nodes(self) -> list[Declaration]:
        """Return nodes for the job, with the labels and taints of the target."""
        pool = self.pools[self.preferred]
        topology = self.plan.named("ResourceFlavor")[self.preferred]["spec"]["topologyName"]
        levels = {each["nodeLabel"] for each in self.plan.named("Topology")[topology]["spec"]["levels"]}
        return [_node(pool, index, levels) for index in range(self.num_nodes)]


def _node(pool: PoolSettings, index: int, levels: set[str]) -> Declaration:
    name = pool.node_names[index] if pool.node_names else f"simulated-{pool.name}-{index}"
    topology = {level: f"{pool.name}-{level.rpartition('/')[2]}" for level in levels}
    labels = {**topology, **pool.labels, **pool.cloud_labels, names.HOSTNAME_LABEL: name}
    cloud = [{"key": key, "value": "present", "effect": "NoSchedule"} for key in pool.cloud_taints]
    return thing("v1", "Node", name, labels=labels, spec={"taints": [*pool.taints, *cloud]})


def heartbeat(cluster: LocalStack, half: TargetHalf) -> None:
    """Write the status of nodes as their kubelets would: readiness and capacity."""
    resources = {"cpu": "192", "memory": "2Ti", "pods": "110", **ADVERTISED[half.name]}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "True", "reason": "Simulated", "lastHeartbeatTime": now}
    status = {"capacity": resources, "allocatable": resources, "conditions": [ready]}
    for node in half.nodes:
        patch = f"--patch={json.dumps({'status': status})}"
        cluster.kubectl("patch", "node", node["metadata"]["name"], "--subresource=status", patch)


@pytest.fixture(scope="module")
def occupied(platform: LocalStack) -> set[str]:
    """Namespaces of running operators, whose objects are only evaluated by dry runs.

    A team's namespaces, and what the API server admits there, differ by stack.
    """
    return set(platform.names("namespaces")) - {NAMESPACE, names.ADMISSION_NAMESPACE}


@pytest.fixture(scope="module")
def operators(platform: LocalStack) -> LocalStack:
    """The cluster with its operators, without its queues, runtimes and volumes."""
    make_room(platform)
    return platform


def make_room(cluster: LocalStack) -> None:
    """Delete the objects that differ by stack: queues, runtimes, and the volumes of teams."""
    for kind in STACKS_OWN.split(","):
        cluster.kubectl("delete", *kind.split(), "--all")
    teams = [name for name in cluster.names("namespaces") if name.startswith("team-")]
    for team in teams:
        cluster.kubectl("delete", "deployments", "--all", "-n", team, "--cascade=foreground")
        cluster.kubectl("delete", "pvc", "--all", "-n", team)
    unused = [each for each in cluster.get("pv")["items"] if each["status"]["phase"] != "Bound"]
    if unused:
        cluster.kubectl("delete", "pv", *(each["metadata"]["name"] for each in unused))


@pytest.fixture(scope="module", params=ADVERTISED)
def half(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TargetHalf:
    """A shipped stack."""
    racks = CASES / "racks" / "coreweave.yaml"
    stack = load(racks if request.param == "racks" else stack_file(request.param))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path_factory.mktemp("kube") / "config")))
        rendered = LINKS / "rendered"
        return TargetHalf(request.param, stack, plan(stack, rendered), pools_of(stack, rendered))


@pytest.fixture(scope="module")
def applied(operators: LocalStack, occupied: set[str], half: TargetHalf) -> Iterator[LocalStack]:
    """The cluster with the stack's objects, as far as they can be created here."""
    served = set(operators.kubectl("api-versions").split())
    objects = [each for each in half.objects if each["apiVersion"] in served]
    assert {each["apiVersion"] for each in half.objects} - served == UNSERVED.get(half.name, set())
    nodes = {each["metadata"]["name"] for each in half.nodes}
    objects = [each for each in objects if each["kind"] != "Node" or each["metadata"]["name"] in nodes]
    selected = [each for each in objects if _is_created(each, occupied)]
    # A bound claim cannot change its volume, which is another stack's here.
    evaluated = [each for each in objects if each not in selected and each["kind"] != "PersistentVolumeClaim"]
    first = [each for each in selected if each["kind"] == "Namespace"]
    apply(operators, first)
    apply(operators, half.nodes, "--field-manager=cloud")
    apply(operators, [each for each in selected if each not in first])
    apply(operators, evaluated, "--dry-run=server")
    operators.kubectl("apply", "--server-side", f"--filename={REQUESTS}")
    configure_kueue(operators, objects)
    provision(operators)
    apply(operators, channels(half))
    heartbeat(operators, half)  # before any job, so that Kueue sees the pool's capacity
    yield operators
    for kind in ("trainjobs", "jobsets", "jobs"):
        operators.kubectl("delete", kind, "--all", "-n", NAMESPACE)
    operators.kubectl("delete", "pods", "--all", "-n", NAMESPACE, "--force", "--grace-period=0")
    operators.kubectl("delete", "node", *nodes)
    make_room(operators)


def _is_created(manifest: Declaration, namespaces: set[str]) -> bool:
    """Whether to create an object; workloads and objects of the running operators are only evaluated."""
    managed = manifest["metadata"].get("namespace") in namespaces
    shared = manifest["kind"].endswith("WebhookConfiguration") or manifest["kind"] == "APIService"
    return not (managed or shared or manifest["kind"] in WORKLOADS)


def apply(cluster: LocalStack, manifests: list[Declaration], *flags: str) -> None:
    """Apply objects by server-side apply, as the engine's provider does."""
    if manifests:
        flags = ("--server-side", "--force-conflicts", *flags)
        cluster.kubectl("apply", "--filename=-", *flags, given=yaml.safe_dump_all(manifests))


def configure_kueue(cluster: LocalStack, objects: list[Declaration]) -> None:
    """Restart Kueue with the stack's configuration: the resources without a quota depend on the fabric."""
    [configuration] = [each for each in objects if each["metadata"]["name"] == "kueue-manager-config"]
    apply(cluster, [configuration])
    rollout = ("deployment/kueue-controller-manager", "-n", "kueue-system")
    cluster.kubectl("rollout", "restart", *rollout)
    cluster.kubectl("rollout", "status", *rollout, "--timeout=600s")


def provision(cluster: LocalStack) -> None:
    """Create volumes for claims without one, as the target's provisioner does."""
    for claim in cluster.get("pvc", "-n", NAMESPACE)["items"]:
        spec, name = claim["spec"], claim["metadata"]["name"]
        if not spec.get("volumeName"):
            volume = {
                "accessModes": spec["accessModes"],
                "capacity": spec["resources"]["requests"],
                "claimRef": {"namespace": NAMESPACE, "name": name},
                "hostPath": {"path": "/nowhere"},
                "storageClassName": spec["storageClassName"],
            }
            apply(cluster, [thing("v1", "PersistentVolume", f"provisioned-{name}", spec=volume)])


def channels(half: TargetHalf) -> list[Declaration]:
    """Create a ComputeDomain's template and a channel of each node, as NVIDIA's driver does."""
    domains = [each for each in half.objects if each["kind"] == "ComputeDomain"]
    own = [each for each in domains if each["metadata"]["namespace"] == NAMESPACE]
    if not own:
        return []
    request = {"name": "channel", "exactly": {"deviceClassName": CHANNELS}}
    expression = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'channel'"
    made = [_dra("DeviceClass", CHANNELS, {"selectors": [{"cel": {"expression": expression}}]})]
    for domain in own:
        name = domain["spec"]["channel"]["resourceClaimTemplate"]["name"]
        spec: Declaration = {"spec": {"devices": {"requests": [request]}}}
        made.append(_dra("ResourceClaimTemplate", name, spec, namespace=NAMESPACE))
    channel = {"name": "channel-0", "attributes": {"type": {"string": "channel"}}}
    for node in half.nodes:
        name = node["metadata"]["name"]
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": [channel]}
        made.append(_dra("ResourceSlice", name, spec))
    return made


def _dra(kind: str, name: str, spec: Declaration, namespace: str = "") -> Declaration:
    return thing("resource.k8s.io/v1", kind, name, namespace, spec=spec)


def test_the_example_job_trains_on_the_local_stack(platform: LocalStack) -> None:
    [given] = paste_kubectl(platform, run_by(__file__, REPOSITORY / "docs/commands.md").text)
    assert given.returncode == 0, given.stderr

    def complete() -> bool:
        conditions = platform.get("trainjob", NAME, "-n", NAMESPACE).get("status", {}).get("conditions", [])
        return any(each["type"] == "Complete" and each["status"] == "True" for each in conditions)

    platform.wait_until(complete, "end of the example job")
    platform.kubectl("delete", f"--filename={JOB}")


def test_the_same_job_becomes_the_pods_of_each_target(applied: LocalStack, half: TargetHalf) -> None:
    job = yaml.safe_load(JOB.read_text())
    job["spec"]["trainer"]["numNodes"] = half.num_nodes
    applied.apply(job)
    pods: list[Declaration] = []

    def placed() -> bool:
        heartbeat(applied, half)
        label = f"jobset.sigs.k8s.io/jobset-name={NAME}"
        pods[:] = applied.get("pods", "-n", NAMESPACE, "-l", label)["items"]
        return len(pods) == half.num_nodes and all(each["spec"].get("nodeName") for each in pods)

    applied.wait_until(placed, f"{half.num_nodes} pods on nodes of {half.name}")
    simulated = {each["metadata"]["name"] for each in half.nodes}
    assert {each["spec"]["nodeName"] for each in pods} <= simulated
    first = min(pods, key=lambda each: str(each["metadata"]["name"]))
    assert_matches(yaml.safe_dump(target_fields(first), width=110), GOLDEN / "pods" / f"{half.name}.yaml")


NOT_HERE = ("doesn't have a resource type", "NotFound")
"""kubectl's errors for definitions of vendors, and for drivers that a cloud installs."""


def paste_kubectl(cluster: LocalStack, text: str) -> list[subprocess.CompletedProcess[str]]:
    """Run the kubectl commands of a block; `test_jobs_by_context` runs the others."""
    programs = REPOSITORY / ".trainyard" / "bin"
    environment = {
        **os.environ,
        "KUBECONFIG": str(cluster.kubeconfig),
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    return [
        subprocess.run(["bash", "-c", line], env=environment, cwd=REPOSITORY, capture_output=True, text=True)
        for line in text.splitlines()
        if line.startswith("kubectl ")
    ]


def test_a_guides_questions_are_answered(applied: LocalStack, half: TargetHalf) -> None:
    page = REPOSITORY / "docs" / f"{half.stack.target.kind}.md"
    heartbeat(applied, half)
    answers = paste_kubectl(applied, run_by(__file__, page).text)
    failed = [each.stderr for each in answers if each.returncode]
    assert [text for text in failed if not any(reason in text for reason in NOT_HERE)] == []
    shown = "".join(each.stdout for each in answers)
    node = half.nodes[0]["metadata"]["name"]
    assert [line for line in shown.splitlines() if line.startswith(node)], shown
    columns = [each.stdout for each in answers if "custom-columns" in each.args[-1]]
    amounts = set(ADVERTISED[half.name].values()) - {"16Gi"}
    for text in columns:
        [row] = [line.split() for line in text.splitlines() if line.startswith(node)]
        assert amounts <= set(row), text


def target_fields(pod: Declaration) -> Declaration:
    """Return the fields of a pod that the target determines, without generated names."""
    spec = pod["spec"]
    selected = ("resources", "env", "volumeMounts", "securityContext", "image", "command", "args")
    annotations = pod["metadata"]["annotations"]
    return {
        "annotations": {key: annotations[key] for key in sorted(annotations) if _is_the_targets(key)},
        "nodeSelector": {
            key: value for key, value in spec["nodeSelector"].items() if key != names.HOSTNAME_LABEL
        },
        # Kueue adds a flavor's tolerations in any order.
        "tolerations": sorted(spec["tolerations"], key=lambda each: str(each["key"])),
        "terminationGracePeriodSeconds": spec["terminationGracePeriodSeconds"],
        "volumes": spec["volumes"],
        **({"resourceClaims": spec["resourceClaims"]} if "resourceClaims" in spec else {}),
        "containers": {
            each["name"]: {key: each[key] for key in selected if key in each}
            for each in [*spec.get("initContainers", []), *spec["containers"]]
        },
    }


def _is_the_targets(annotation: str) -> bool:
    return annotation.startswith(("networking.gke.io/", "k8s.v1.cni.cncf.io/", "devices.", "gke-gcsfuse/"))
