"""Isolation of teams on one cluster: attacks that must be refused, and workloads that must work.

Members have separate certificates, and most requests are dry runs. Pods are tried in the form in which the
job controller creates them, since they are evaluated last, whoever wrote the template.
"""

import json
import resource
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml

from engine.paths import REPOSITORY
from tests.e2e import probes
from tests.e2e.manifests import GPU, NAMESPACE, QUEUE, Manifest, container
from tests.e2e.stack import SECONDS, LocalStack
from tests.e2e.tenants import (
    ATTACKS,
    IMAGE,
    JOB_CONTROLLER,
    Person,
    carried,
    collection,
    job,
    job_set,
    jobs_by_themselves,
    labelled_pods,
    merged,
    mpi,
    pod,
    pytorch,
    sdk_job,
    template,
    train_job,
)
from tests.objects import thing

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

POLICY = "ValidatingAdmissionPolicy 'trainyard-teams-"
OTHER = "team-platform"
ACCOUNTS, MASTERS = "system:serviceaccounts", "system:masters"
CAP_SYS_RESOURCE = 24
UNPROCESSABLE = httpx.codes.UNPROCESSABLE_ENTITY
KUBECTL = REPOSITORY / ".trainyard" / "bin" / "kubectl"
CONTROLLER_GROUPS = ("system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated")


@pytest.fixture(scope="module")
def member(stack: LocalStack) -> Person:
    return Person(stack, "mei", "research")


@pytest.fixture(scope="module")
def viewer(stack: LocalStack) -> Person:
    return Person(stack, "vera", "research-viewers")


@pytest.fixture(scope="module")
def admin(stack: LocalStack) -> Person:
    return Person(stack, "administrator", "system:masters")


def refusal(answer: httpx.Response) -> str:
    """Return why the API server refused; empty if it did not."""
    return "" if answer.is_success else str(answer.json()["message"])


def made_by_controller(admin: Person, manifest: Manifest) -> str:
    """Have the job controller create an object; return why it was refused."""
    return refusal(admin.create(manifest, user=JOB_CONTROLLER, groups=CONTROLLER_GROUPS))


@contextmanager
def privileged(stack: LocalStack) -> Iterator[None]:
    """Have Pod Security admit everything in the other team's namespace."""
    label = ("label", "namespace", OTHER, "--overwrite")
    stack.kubectl(*label, "pod-security.kubernetes.io/enforce=privileged")
    try:
        yield
    finally:
        stack.kubectl(*label, "pod-security.kubernetes.io/enforce=restricted")


@pytest.fixture(scope="module", autouse=True)
def occasions(stack: LocalStack) -> Iterator[None]:
    """Create what attacks refer to: an account, a job that waits in the queue, a pod that never starts."""
    stack.kubectl("create", "serviceaccount", "deployer", "-n", NAMESPACE)
    stack.apply(merged(job(), {"metadata": {"name": "admitted"}, "spec": {"parallelism": 100}}))
    gates = {"spec": {"schedulingGates": [{"name": "example.com/never"}]}}
    stack.apply(merged(pod(gates, gpu=False), {"metadata": {"name": "resting"}}))
    yield
    stack.kubectl("delete", "serviceaccount/deployer", "job/admitted", "pod/resting", "-n", NAMESPACE)


def test_a_pod_that_crosses_a_boundary_is_refused_whoever_makes_it(admin: Person) -> None:
    wrong = {}
    for name, attack in ATTACKS.items():
        output = made_by_controller(admin, pod(attack.patch))
        expected = "violates PodSecurity" if attack.by_pod_security else attack.message
        if expected not in output and (POLICY not in output or attack.message not in output):
            wrong[name] = output
    assert wrong == {}


def test_policies_hold_where_pod_security_does_not(stack: LocalStack, admin: Person) -> None:
    """On TCPXO a team's namespace is `privileged`, since the fabric's daemon is a part of each pod."""
    wrong = {}
    with privileged(stack):
        for name, attack in ATTACKS.items():
            if attack.by_pod_security:
                made = merged(pod(attack.patch), {"metadata": {"namespace": OTHER}})
                output = made_by_controller(admin, made)
                if POLICY not in output or attack.message not in output:
                    wrong[name] = output
    assert wrong == {}


FABRIC = yaml.safe_load(Path(__file__).with_name("fabric_daemon.yaml").read_text())
DAEMON: Manifest = FABRIC["daemon"]
DAEMONS = (
    "image registry.example.com/fabric/daemon:1, name fabric-daemon, command /bin/run --fast"
    ", env LD_LIBRARY_PATH=/usr/local/nvidia/lib64, mount host-sys /hostsysfs, capability NET_ADMIN"
)
WITH_DAEMON = {
    "metadata": {"namespace": OTHER},
    "spec": {
        "initContainers": [DAEMON],
        "volumes": [{}, {"name": "host-sys", "persistentVolumeClaim": {"claimName": "host-sys"}}],
    },
}
CHANGED: Mapping[str, Manifest] = FABRIC["changed"]


def test_a_fabrics_daemon_runs_as_root_only_in_the_runtimes_form(stack: LocalStack, admin: Person) -> None:
    def refusal_of(patch: Manifest) -> str:
        made = merged(pod(WITH_DAEMON), {"spec": {"initContainers": [patch]}})
        return made_by_controller(admin, made)

    with privileged(stack), known_daemons(stack):
        stack.wait_until(lambda: not refusal_of({}), "the list of the team's daemons")
        refused = {name: refusal_of(patch) for name, patch in CHANGED.items()}
        swapped = {"spec": {"volumes": [{}, {"persistentVolumeClaim": {"claimName": "checkpoints"}}]}}
        refused["claim"] = made_by_controller(admin, merged(pod(WITH_DAEMON), swapped))
        mounts = [{}, {"name": "host-sys", "mountPath": "/sys-of-node"}]
        mounted = merged(pod(WITH_DAEMON), {"spec": {"containers": [{"volumeMounts": mounts}]}})
        refused["path of the node"] = made_by_controller(admin, mounted)
        because = ("fabric's daemon runs as root", "capabilities.add")
        assert {
            name: text for name, text in refused.items() if not any(each in text for each in because)
        } == {}
        shell = f"{AWAY}/pods/any/exec"
        assert "daemon runs as root" in admin.ask("GET", shell, container="fabric-daemon", command="id").text
        assert "not found" in admin.ask("GET", shell, container="node", command="id").text


@contextmanager
def known_daemons(stack: LocalStack) -> Iterator[None]:
    patch = ("patch", "configmap", "teams", "-n", "trainyard-admission", "--type=merge", "-p")
    stack.kubectl(*patch, json.dumps({"data": {"platform.daemons": DAEMONS}}))
    try:
        yield
    finally:
        stack.kubectl(*patch, json.dumps({"data": {"platform.daemons": ""}}))


def test_an_existing_pod_cannot_be_changed_into_such_a_pod(admin: Person) -> None:
    """The user may patch pods, which a member may not."""
    path = f"{CORE}/namespaces/{NAMESPACE}/pods/resting"
    spied = {"name": "debug", "image": IMAGE, "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    sound = pod()["spec"]["containers"][0]["securityContext"]
    debug = {"spec": {"ephemeralContainers": [{**spied, "securityContext": sound}]}}
    moved = {"spec": {"nodeSelector": {"kubernetes.io/hostname": "spot-0"}}}
    output = refusal(admin.ask("PATCH", f"{path}/ephemeralcontainers", debug))
    assert "NVIDIA_VISIBLE_DEVICES" in output
    assert "nodeSelector" in refusal(admin.ask("PATCH", path, moved))
    assert refusal(admin.ask("PATCH", path, {"metadata": {"labels": {"a": "b"}}})) == ""


def test_a_member_who_submits_such_a_pod_is_reported_at_once(member: Person) -> None:
    wrong = {}
    for name, kind, attack, manifest in carried():
        output = refusal(member.create(manifest))
        if POLICY not in output or attack.message not in output:
            wrong[f"{name} in a {kind}"] = output
    assert wrong == {}


def test_a_job_keeps_to_its_queue_and_its_priorities(member: Person) -> None:
    """The reason is Invalid: in a dry run, Forbidden would mean a missing right."""
    wrong = {}
    for name, kind, manifest, message in jobs_by_themselves():
        answer = member.create(manifest)
        output = refusal(answer)
        if POLICY not in output or message not in output or answer.status_code != UNPROCESSABLE:
            wrong[f"{name} in a {kind}"] = output
    assert wrong == {}


def test_a_pod_made_by_hand_has_no_accelerator(admin: Person) -> None:
    """Also by a user with more rights than a member's."""

    def refused(manifest: Manifest) -> str:
        return refusal(admin.create(manifest, user="eve", groups=(MASTERS,)))

    assert "submit a job" in refused(pod())
    owned = {"ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "0"}]}
    assert "ownerReferences" in refused(pod({"metadata": owned}, gpu=False))
    no_queue = {**pod(gpu=False), "spec": template(gpu=False)["spec"]}
    assert "the operators' nodes take none" in made_by_controller(admin, no_queue)
    token = {"name": "token", "annotations": {"kubernetes.io/service-account.name": "default"}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {**token, "namespace": NAMESPACE}}
    assert "Opaque" in refused({**secret, "type": "kubernetes.io/service-account-token"})


def test_valid_workloads_are_admitted(member: Person, admin: Person) -> None:
    example = yaml.safe_load((REPOSITORY / "examples" / "trainjob.yaml").read_text())
    own_image = {"spec": {"trainer": {"image": "ghcr.io/mei/model:1", "resourcesPerNode": {"limits": GPU}}}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tracker"}, "stringData": {"k": "v"}}
    sound = {
        "the example": example,
        "TrainJob": train_job(),
        "an image of one's own": merged(train_job(), own_image),
        "a TrainJob that labels its pods": labelled_pods(),
        "Kubeflow's SDK": sdk_job(),
        "JobSet": job_set(),
        "MPIJob": mpi(),
        "PyTorchJob": pytorch(),
        "Job": job(),
        "CPU job": job(gpu=False),
        "Secret": secret,
    }
    refused = {name: output for name, each in sound.items() if (output := refusal(member.create(each)))}
    assert refused == {}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "resting", "uid": "0"}
    made = pod({"metadata": {"ownerReferences": [owner]}})
    assert made_by_controller(admin, made) == ""
    for place, name in (("mpi-operator", "mpi-operator"), ("kubeflow", "training-operator")):
        user, groups = f"system:serviceaccount:{place}:{name}", (f"{ACCOUNTS}:{place}", MASTERS)
        assert refusal(admin.create(made, user=user, groups=groups)) == ""


def managers(count: int) -> list[Manifest]:
    """What applying a field by so many names leaves behind."""
    applied = {"operation": "Apply", "apiVersion": "kueue.x-k8s.io/v1beta2", "time": "2026-01-01T00:00:00Z"}
    fields = {"fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:queueName": {}}}}
    return [{**applied, **fields, "manager": f"manager-{number}"} for number in range(count)]


def test_a_member_pauses_a_job_and_changes_nothing_else_of_its_workload(
    stack: LocalStack, member: Person, admin: Person
) -> None:
    """Nor may an administrator: a higher priority or fewer pods would bypass the queue."""
    [name] = [
        each["metadata"]["name"]
        for each in stack.get("workloads.kueue.x-k8s.io", "-n", NAMESPACE)["items"]
        if each["metadata"]["ownerReferences"][0]["name"] == "admitted"
    ]
    path = f"{KUEUE}/namespaces/{NAMESPACE}/workloads/{name}"
    assert refusal(member.ask("PATCH", path, {"spec": {"active": False}})) == ""
    too_large = managers(5000)  # for the store with one more condition
    attacks: tuple[Manifest, ...] = (
        *({"spec": {"priority": 99999}}, {"spec": {"active": False, "queueName": "default"}}),
        {"spec": {"maximumExecutionTimeSeconds": 1}},
        {"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "high"}}},
        *({"metadata": {"finalizers": ["example.com/mine"]}}, {"metadata": {"ownerReferences": []}}),
        {"metadata": {"managedFields": too_large}},
    )
    for attack in attacks:
        for person in (member, admin):
            assert "spec.active" in refusal(person.ask("PATCH", path, attack)), attack


def test_a_deleted_jobs_pods_are_deleted(stack: LocalStack, member: Person) -> None:
    """Orphaned pods would continue, although their quota is free for the next job."""
    of_job = {"metadata": {"name": "orphaning"}, "spec": {"parallelism": 90}}  # more than the queue has
    name = {"metadata": {"name": "orphaning"}}
    workers = {"mpiReplicaSpecs": {"Worker": {"replicas": 90}}}
    made = {
        "jobs": merged(job(), of_job),
        "jobsets": merged(job_set(), {**name, "spec": {"replicatedJobs": [{"replicas": 90}]}}),
        "mpijobs": merged(mpi(), {**name, "spec": workers}),
        "trainjobs": merged(train_job(), {**name, "spec": {"trainer": {"numNodes": 90}}}),
    }
    stack.apply(*made.values())
    wrong = []
    try:
        for kind, manifest in made.items():
            path = f"{collection(manifest)}/orphaning"
            ways: list[dict[str, str]] = [{"propagationPolicy": "Orphan"}, {"orphanDependents": "true"}]
            if "without quota" not in refusal(member.ask("DELETE", path, {"propagationPolicy": "Orphan"})):
                wrong.append((kind, {"body": "Orphan"}))
            for query in [*ways, {}] if kind == "jobs" else ways:  # the default for Jobs is to orphan pods
                if "without quota" not in refusal(member.ask("DELETE", path, None, **query)):
                    wrong.append((kind, query))
            for policy in ("Background", "Foreground"):
                assert refusal(member.ask("DELETE", path, propagationPolicy=policy)) == ""
    finally:
        for kind in made:
            stack.kubectl("delete", kind, "orphaning", "-n", NAMESPACE)
    assert wrong == []


INTERNS = "team-interns"
END = "/tmp/end"


def stubborn(stack: LocalStack, name: str) -> Manifest:
    """Return a job of one accelerator, its team's limit, that ignores SIGTERM and ends once END exists."""
    command = ["sh", "-c", f"trap '' TERM; until [ -e {END} ]; do sleep 1; done"]
    main = {"image": stack.training_image, "command": command}
    made = job({"spec": {"containers": [main], "terminationGracePeriodSeconds": 240}}, queue="interns")
    return merged(made, {"metadata": {"name": name, "namespace": INTERNS}})


def test_a_cancelled_jobs_accelerators_count_until_its_pods_have_ended(stack: LocalStack) -> None:
    """Its quota is free at once, and the queue admits the next job, but both may not run at the same time."""
    member = Person(stack, "ina", "interns")
    most = 0

    def running() -> list[str]:
        nonlocal most
        pods = stack.get("pods", "-n", INTERNS, "-l", "job-name", "--field-selector=status.phase=Running")
        names = [pod["metadata"]["labels"]["job-name"] for pod in pods["items"]]
        most = max(most, len(names))
        return names

    def events() -> str:
        found = stack.get("events", "-n", INTERNS, "--field-selector=reason=FailedCreate")["items"]
        return " ".join(each["message"] for each in found)

    kubectl(member, "-n", INTERNS, "create", "-f-", given=yaml.safe_dump(stubborn(stack, "first")))
    try:
        stack.wait_until(lambda: running() == ["first"], "first job")
        kubectl(member, "-n", INTERNS, "delete", "job", "first", "--wait=false")
        kubectl(member, "-n", INTERNS, "create", "-f-", given=yaml.safe_dump(stubborn(stack, "second")))
        stack.wait_until(lambda: "exceeded quota: team" in events(), "pod that the quota refuses")
        assert running() == ["first"], "the queue has admitted the second job while the first one ends"
        let_pods_end(stack)
        stack.wait_until(lambda: running() == ["second"], "second job")
        assert most == 1
    finally:
        let_pods_end(stack)
        stack.kubectl("delete", "jobs", "--all", "-n", INTERNS, "--cascade=foreground")


def let_pods_end(stack: LocalStack) -> None:
    """End the pods, since the kubelet does not shorten a grace period that has begun (as tested on 1.35)."""
    pods = stack.get("pods", "-n", INTERNS, "-l", "job-name", "--field-selector=status.phase=Running")
    for each in pods["items"]:
        stack.kubectl("exec", each["metadata"]["name"], "-n", INTERNS, "--", "touch", END)


def test_a_namespace_holds_no_more_than_its_limits(admin: Person) -> None:
    """An administrator's requests are counted too."""
    big, wide = {"ephemeral-storage": "101Gi"}, {"cpu": "9000"}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1025Gi"}}}
    port = {"type": "NodePort", "ports": [{"port": 80}]}
    refused = {
        "maximum ephemeral-storage": pod({"spec": {"containers": [{"resources": {"limits": big}}]}}),
        "requested: requests.cpu=": pod({"spec": {"containers": [{"resources": {"requests": wide}}]}}),
        "requested: requests.storage=": thing("v1", "PersistentVolumeClaim", "trial", NAMESPACE, spec=claim),
        "requested: services.nodeports=": thing("v1", "Service", "trial", NAMESPACE, spec=port),
    }
    for message, manifest in refused.items():
        user = JOB_CONTROLLER if manifest["kind"] == "Pod" else ""
        output = refusal(admin.create(manifest, user=user, groups=CONTROLLER_GROUPS if user else ()))
        assert message in output


def test_a_member_sees_a_jobs_position_and_ends_no_queue_by_asking(stack: LocalStack, member: Person) -> None:
    """Before 0.18.4 a large `limit` ended Kueue (kubernetes-sigs/kueue#13053)."""
    [before] = stack.get("pods", "-n", "kueue-system")["items"]
    path = f"{VISIBILITY}/namespaces/{NAMESPACE}/localqueues/{QUEUE}/pendingworkloads"
    answer = member.ask("GET", path, limit=str(2**63 - 1)).json()
    [waiting] = [each for each in answer["items"] if each["metadata"]["name"].startswith("job-admitted-")]
    assert waiting["positionInClusterQueue"] >= 0
    [after] = stack.get("pods", "-n", "kueue-system")["items"]
    assert after["status"]["containerStatuses"] == before["status"]["containerStatuses"]


def test_members_and_viewers_do_what_a_job_needs_and_no_more(member: Person, viewer: Person) -> None:
    """RBAC, by verb and resource: the API server refuses before it evaluates any policy."""
    body = {"metadata": {"name": "any"}}
    passed = [f"{verb} {path}" for verb, path in FORBIDDEN if member.ask(verb, path, body).is_success]
    assert passed == []
    looked = [path for path in LOOKED if not viewer.ask("GET", path).is_success]
    assert looked == []
    assert refusal(viewer.create(train_job()))
    assert "pods/exec" in refusal(viewer.ask("POST", f"/api/v1/namespaces/{NAMESPACE}/pods/any/exec"))


def test_a_member_cannot_impersonate_others(member: Person) -> None:
    for user, groups in (("eve", ("system:masters",)), (JOB_CONTROLLER, CONTROLLER_GROUPS)):
        assert "cannot impersonate" in refusal(member.create(pod(), user=user, groups=groups))


CORE = "/api/v1"
KUEUE, TRAINER = "/apis/kueue.x-k8s.io/v1beta2", "/apis/trainer.kubeflow.org/v1alpha1"
VISIBILITY = "/apis/visibility.kueue.x-k8s.io/v1beta2"
HOME, AWAY = f"{CORE}/namespaces/{NAMESPACE}", f"{CORE}/namespaces/{OTHER}"
LOOKED = (
    *(f"{HOME}/{kind}" for kind in ("pods", "events", "resourcequotas")),
    *(f"{KUEUE}/namespaces/{NAMESPACE}/{kind}" for kind in ("localqueues", "workloads")),
    *(f"{KUEUE}/workloadpriorityclasses", f"{TRAINER}/clustertrainingruntimes"),
    *(f"{TRAINER}/namespaces/{NAMESPACE}/trainjobs", f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"),
)
FORBIDDEN = [
    line.split()
    for line in Path(__file__).with_name("forbidden.txt").read_text().splitlines()
    if line.partition(" ")[0].isalpha()
]


LOCKS = (
    "python3",
    "-c",
    "import ctypes, mmap; size = 96 * 2**20; memory = mmap.mmap(-1, size)"
    "; start = ctypes.addressof(ctypes.c_char.from_buffer(memory))"
    "; print(ctypes.CDLL(None).mlock(ctypes.c_void_p(start), ctypes.c_size_t(size)) == 0)",
)
"""Whether a pod may lock 96 MiB, as RDMA would."""


def may_lock() -> bool:
    """Whether this host's limit of locked memory lets pods without a capability lock more."""
    unlimited = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1] == resource.RLIM_INFINITY
    capabilities = int(Path("/proc/self/status").read_text().split("CapEff:")[1].split()[0], 16)
    return unlimited or bool(capabilities & 1 << CAP_SYS_RESOURCE)


def test_a_members_requests_are_in_the_audit_log_without_content(stack: LocalStack, member: Person) -> None:
    secret = {"metadata": {"name": "audited"}, "stringData": {"token": "nobody-may-read-this"}}
    assert member.ask("POST", f"{HOME}/secrets", secret).is_success
    assert member.ask("GET", f"{AWAY}/secrets").status_code == 403
    log = stack.run.parent / "audit" / "audit.log"
    assert log.stat().st_mode & 0o777 == 0o600
    assert log.parent.stat().st_mode & 0o777 == 0o700
    text = log.read_text()
    asked = [json.loads(line) for line in text.splitlines() if '"username":"mei"' in line]
    found = {
        (each["verb"], each["objectRef"].get("namespace"), each["responseStatus"]["code"])
        for each in asked
        if each.get("objectRef", {}).get("resource") == "secrets"  # impersonations have no objectRef
    }
    assert {("create", NAMESPACE, 201), ("list", OTHER, 403)} <= found
    assert "nobody-may-read-this" not in text
    assert not any("requestObject" in each or "responseObject" in each for each in asked)


def kubectl(person: Person, *words: str, given: str = "") -> str:
    """Run kubectl as this person, and return what it prints."""
    command = [str(KUBECTL), f"--kubeconfig={person.kubeconfig}", *words]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
    return done.stdout


def test_a_member_works_in_a_pod_without_accelerators_and_cancels(stack: LocalStack, member: Person) -> None:
    main = {"image": stack.training_image, "command": ["python3", "-m", "http.server", "8080"]}
    soon = {"containers": [main], "terminationGracePeriodSeconds": 1}  # the server does not heed SIGTERM
    server = merged(job({"spec": soon}, gpu=False), {"metadata": {"name": "served"}})
    kubectl(member, "create", "--filename=-", given=yaml.safe_dump(server))

    def running() -> bool:
        phase = "--output=jsonpath={.items[*].status.phase}"
        return kubectl(member, "get", "pods", "--selector=job-name=served", phase) == "Running"

    try:
        stack.wait_until(running, "pod of the job")
        assert kubectl(member, "exec", "job/served", "--", "id", "-u").strip() == "1000"
        assert kubectl(member, "exec", "job/served", "--", *LOCKS).strip() == str(may_lock())
        assert "HTTP" in forwarded(member)
        assert '"GET / ' in kubectl(member, "logs", "job/served")
        assert "served" in kubectl(member, "get", "workloads", "--output=name")
        placed = kubectl(member, "get", "pods", "--selector=job-name=served", "-o=jsonpath={..nodeName}")
        assert placed.startswith("spot-"), "the queue's first pool, and none of the operators' nodes"
    finally:
        kubectl(member, "delete", "job", "served", "--cascade=foreground", "--wait=true")


def forwarded(person: Person) -> str:
    """Return the first line that the pod's server answers through a forwarded port."""
    command = [str(KUBECTL), f"--kubeconfig={person.kubeconfig}", "port-forward", "job/served", ":8080"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            output = process.stdout.readline()  # Forwarding from 127.0.0.1:41234 -> 8080
            port = output.partition(" -> ")[0].rpartition(":")[2]
            answer = httpx.get(f"http://127.0.0.1:{port}/", trust_env=False)
            return f"{answer.http_version} {answer.status_code}"
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def served(stack: LocalStack) -> Iterator[None]:
    """Start serving pods: two of a job, one of another team, and one of no team.

    The team's pods try the API server first, when its agents do not know them yet.
    """
    first = {"API server": f"{stack.service('kubernetes', 'default')}:443"}
    main = {"image": stack.training_image, "command": probes.serving(first)}
    soon = {"containers": [main], "terminationGracePeriodSeconds": 1}  # the server does not heed SIGTERM
    ours = merged(job({"spec": soon}), {"metadata": {"name": "open"}, "spec": {"parallelism": 2}})
    theirs = merged(job({"spec": soon}, queue="platform"), {"metadata": {"name": "open", "namespace": OTHER}})
    alone = {**container(stack.training_image, probes.serving({})), "volumeMounts": []}
    nobodys = thing("v1", "Pod", "open", "default", spec={"containers": [alone]})
    stack.apply(ours, theirs, nobodys)
    try:
        stack.wait_until(lambda: len(stack.addresses(NAMESPACE, "job-name=open")) == 2, "pods of the team")
        stack.wait_until(lambda: len(stack.addresses(OTHER, "job-name=open")) == 1, "pod of the other team")
        stack.kubectl("wait", "pod/open", "-n", "default", "--for=condition=Ready", f"--timeout={SECONDS:g}s")
        yield
    finally:
        for namespace in (NAMESPACE, OTHER):
            stack.kubectl("delete", "job", "open", "-n", namespace, "--cascade=foreground")
        stack.kubectl("delete", "pod", "open", "-n", "default", "--grace-period=1")


def closed_addresses(stack: LocalStack) -> dict[str, str]:
    """Return addresses that pods of teams may not reach, and other pods do."""
    nodes = stack.get("nodes")["items"]
    kubelets = {node["metadata"]["name"]: node["status"]["addresses"][0]["address"] for node in nodes}
    [kueue] = stack.addresses("kueue-system", "control-plane=controller-manager")
    return {
        **{f"kubelet of {name}": f"{address}:10250" for name, address in kubelets.items()},
        "API server": f"{stack.service('kubernetes', 'default')}:443",
        "API server by its own address": f"{stack.control}:6443",
        "Kueue's webhook": f"{stack.service('kueue-webhook-service', 'kueue-system')}:443",
        "Kueue's webhook by its pod": f"{kueue}:9443",
        "Kueue's metrics": f"{kueue}:8443",
        "DNS server's host, by another port": f"{stack.control}:22",
    }


@pytest.mark.usefixtures("served")
def test_a_pod_of_a_team_reaches_its_team_and_declared_places(stack: LocalStack, member: Person) -> None:
    [theirs] = stack.addresses(OTHER, "job-name=open")
    own, sibling = stack.addresses(NAMESPACE, "job-name=open")
    never = {"the other team": f"{theirs}:{probes.PORT}", "metadata service": "169.254.169.254:80"}
    wanted = {
        "itself": f"{own}:{probes.PORT}",
        "the job's other pod": f"{sibling}:{probes.PORT}",
        "object store": f"object-store.trainyard-storage.svc:{7070}",
        "DNS by TCP": f"{stack.service('kube-dns', 'kube-system')}:53",
    }
    closed = closed_addresses(stack)
    addresses = {**never, **closed, **wanted}
    output = kubectl(member, "exec", "job/open", "--", *probes.trying(addresses))
    assert json.loads(output) == expected(addresses, wanted)
    # A pod of no team reaches the same addresses, so the policy closes them, and not a missing server.
    outside = stack.kubectl("exec", "-n", "default", "open", "--", *probes.trying({**never, **closed}))
    assert json.loads(outside) == expected({**never, **closed}, closed)


@pytest.mark.usefixtures("served")
def test_a_pods_policy_applies_before_its_address_is_known(member: Person) -> None:
    """Its first packet leaves before the kubelet has reported it to the API server."""
    assert 'FIRST {"API server": "closed"}' in kubectl(member, "logs", "job/open")


@pytest.mark.usefixtures("served")
def test_a_pod_that_floods_the_queue_of_packets_delays_no_others(stack: LocalStack, member: Person) -> None:
    """Each such packet is held for seconds, and the queue of a node has a length."""
    here, _ = stack.addresses(NAMESPACE, "job-name=open")
    network = here.rsplit(".", 2)[0]
    place = {"object store": f"{stack.service('object-store', 'trainyard-storage')}:7070"}
    output = kubectl(member, "exec", "job/open", "--", *probes.flooding(f"{network}.250.%d", place))
    assert json.loads(output) == {"object store": "open"}


def expected(addresses: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    return {name: "open" if name in wanted else "closed" for name in addresses}
