"""Members of teams with separate credentials, and the attacks and valid workloads that they submit."""

import copy
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from typer.testing import CliRunner

from local.cluster.pki import Authority, CertificateSubject
from tests.e2e.manifests import GPU, NAMESPACE, QUEUE, Manifest, container, legacy_job, mpi_job, pod_spec
from tests.e2e.stack import SECONDS, LocalStack
from tests.objects import thing
from tests.servers import kubeconfig_of
from trainyard.cli import app_of

Command = Callable[..., str]
JOB_CONTROLLER = "system:serviceaccount:kube-system:job-controller"
IMAGE = "registry.example.com/training:1"
SLEEP = ["sleep", "1"]
Patch = Mapping[str, Any]
_SOUND: Patch = {}


class Person:
    """A user with a certificate that the cluster has signed, and no other rights."""

    def __init__(self, stack: LocalStack, name: str, *groups: str) -> None:
        pair = Authority(stack.run / "pki", "ca").issue(f"person-{name}", CertificateSubject(name, groups))
        authority = str(stack.run / "pki" / "ca.crt")
        context = ssl.create_default_context(cafile=authority)
        context.load_cert_chain(pair.certificate, pair.key)
        admin = yaml.safe_load(stack.kubeconfig.read_text())
        server = admin["clusters"][0]["cluster"]["server"]
        self._http = httpx.Client(base_url=server, verify=context, timeout=SECONDS, trust_env=False)
        self.kubeconfig = _kubeconfig(stack.folder / f"{name}.kubeconfig", server, authority, pair)

    def ask(self, verb: str, path: str, body: Manifest | None = None, **query: str) -> httpx.Response:
        """Send a dry-run request to the API server."""
        kind = "application/merge-patch+json" if verb == "PATCH" else "application/json"
        changes = {} if verb == "GET" else {"dryRun": "All"}
        arguments: dict[str, Any] = {"headers": {"content-type": kind}} | ({"json": body} if body else {})
        return self._http.request(verb, path, params={**changes, **query}, **arguments)

    def create(self, manifest: Manifest, *, user: str = "", groups: tuple[str, ...] = ()) -> httpx.Response:
        """Try to create an object by a dry run; `user` is whom an administrator impersonates."""
        headers = [("impersonate-user", user), *(("impersonate-group", group) for group in groups)]
        given: dict[str, Any] = {"params": {"dryRun": "All"}, "headers": headers if user else None}
        return self._http.post(collection(manifest), json=manifest, **given)


def _kubeconfig(file: Path, server: str, authority: str, pair: Any) -> Path:
    cluster = {"certificate-authority": authority}
    user = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
    config = kubeconfig_of(server, user, context="trial", namespace=NAMESPACE, **cluster)
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **config}))
    return file


def command_of(person: Person, patch: pytest.MonkeyPatch) -> Command:
    """Return a function that runs `trainyard …` as this person, without a stack file; it raises errors."""
    patch.setenv("KUBECONFIG", str(person.kubeconfig))

    def run(*words: str, given: str = "") -> str:
        place = ("--context", "trial", "--stack", "unwritten")
        index = words.index("--") if "--" in words else len(words)
        done = CliRunner().invoke(app_of(words), [*words[:index], *place, *words[index:]], input=given)
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == 0, done.output
        return done.output

    return run


def collection(manifest: Manifest) -> str:
    """Return the path that objects of this kind are created under."""
    api = manifest["apiVersion"]
    root = f"/apis/{api}" if "/" in api else f"/api/{api}"
    namespace = manifest["metadata"].get("namespace", NAMESPACE)
    return f"{root}/namespaces/{namespace}/{manifest['kind'].lower()}s"


def merged(base: Manifest, patch: Patch) -> Manifest:
    """Return the manifest with these fields; a list under a key is merged by position."""
    result = copy.deepcopy(base)
    for key, value in patch.items():
        old = result.get(key)
        if isinstance(value, Mapping) and isinstance(old, dict):
            result[key] = merged(old, value)
        elif isinstance(value, list) and isinstance(old, list) and value and isinstance(value[0], Mapping):
            heads = [merged(a, b) for a, b in zip(old, value, strict=False)]
            result[key] = [*heads, *old[len(value) :], *value[len(old) :]]
        else:
            result[key] = copy.deepcopy(value)
    return result


def template(patch: Patch = _SOUND, *, gpu: bool = True) -> Manifest:
    """Return the template of a valid pod, with an attack's patch."""
    sound = {"metadata": {}, "spec": pod_spec(container(IMAGE, SLEEP, gpu=gpu))}
    return merged(sound, patch)


def _object(api: str, kind: str, spec: Manifest, queue: str | None = QUEUE) -> Manifest:
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    return thing(api, kind, "trial", NAMESPACE, labels=labels, spec=spec)


def pod(patch: Patch = _SOUND, *, gpu: bool = True) -> Manifest:
    """Return a pod as a controller creates it for a job that the queue has admitted to a pool."""
    made = merged({"spec": {"nodeSelector": {"trainyard.dev/pool": "spot"}}}, template(gpu=gpu))
    made = merged(made, patch)
    about = {"name": "trial", "namespace": NAMESPACE, **made["metadata"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": made["spec"]}


def job(patch: Patch = _SOUND, *, gpu: bool = True, queue: str | None = QUEUE) -> Manifest:
    return _object("batch/v1", "Job", {"template": template(patch, gpu=gpu)}, queue)


def job_set(patch: Patch = _SOUND, *, gpu: bool = True, queue: str | None = QUEUE) -> Manifest:
    replicated = {"name": "node", "template": {"spec": {"template": template(patch, gpu=gpu)}}}
    return _object("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": [replicated]}, queue)


def mpi(patch: Patch = _SOUND, *, queue: str | None = QUEUE) -> Manifest:
    made = mpi_job("trial", IMAGE, nodes=2, command=SLEEP)
    worker = made["spec"]["mpiReplicaSpecs"]["Worker"]
    worker["template"] = merged({"metadata": {}, **worker["template"]}, patch)
    return made if queue else {**made, "metadata": {**made["metadata"], "labels": {}}}


def pytorch(patch: Patch = _SOUND, *, queue: str | None = QUEUE) -> Manifest:
    made = legacy_job("PyTorchJob", "trial", IMAGE, container_name="pytorch", command=SLEEP)
    worker = made["spec"]["pytorchReplicaSpecs"]["Worker"]
    worker["template"] = merged({"metadata": {}, **worker["template"]}, patch)
    return made if queue else {**made, "metadata": {**made["metadata"], "labels": {}}}


_PATCHED = {
    *("affinity", "containers", "initContainers", "nodeSelector", "securityContext", "serviceAccountName"),
    *("terminationGracePeriodSeconds", "tolerations", "volumes"),
}
"""Fields of a pod that a TrainJob's `runtimePatches` can set."""


def train_job(patch: Patch = _SOUND, *, queue: str | None = QUEUE) -> Manifest:
    """Return a TrainJob with the attack's patch, as far as a TrainJob can carry it."""
    spec = {key: value for key, value in patch.get("spec", {}).items() if key in _PATCHED}
    if "containers" in spec:
        known_fields = {"name", "env", "securityContext", "volumeMounts"}
        named = [{"name": "node", **each} for each in spec["containers"]]
        spec["containers"] = [{key: each[key] for key in each if key in known_fields} for each in named]
    laid = {"metadata": patch.get("metadata", {}), "spec": spec}
    jobs = [{"name": "node", "template": {"spec": {"template": laid}}}]
    patches = [{"manager": "trial", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}]
    own = {"runtimeRef": {"name": "torch-tcp"}, "trainer": {"numNodes": 1, "image": IMAGE}}
    made = _object("trainer.kubeflow.org/v1alpha1", "TrainJob", own, queue)
    return merged(made, {"spec": {"runtimePatches": patches}}) if patch else made


CARRIERS: Mapping[str, Callable[[Patch], Manifest]] = {
    "Job": job,
    "JobSet": job_set,
    "MPIJob": mpi,
    "PyTorchJob": pytorch,
    "TrainJob": train_job,
}
"""Kind → function that makes a job of this kind with the pod's patch."""


@dataclass(frozen=True)
class Attack:
    """A pod that must be refused, and a text of the refusal."""

    patch: Patch
    message: str
    train_job: bool = True
    """Whether a TrainJob can carry it."""
    whole: bool = False
    """Whether only a whole template has it."""
    by_pod_security: bool = False
    """Whether Pod Security refuses the pod before the policies evaluate it."""
    gpu: bool = field(default=True)


_CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


ATTACKS: Mapping[str, Attack] = {
    name: Attack(**attack)
    for name, attack in yaml.safe_load(Path(__file__).with_name("attacks.yaml").read_text()).items()
}
"""Boundary → a pod that violates it, for every kind of job."""


def carried() -> Iterator[tuple[str, str, Attack, Manifest]]:
    """Yield each attack in every kind of job that can carry it: name, kind, attack, manifest."""
    for name, attack in ATTACKS.items():
        for kind, carrier in CARRIERS.items():
            if kind != "TrainJob" or (attack.train_job and not attack.whole):
                yield name, kind, attack, carrier(attack.patch)


def _labelled(manifest: Manifest, **labels: str) -> Manifest:
    named = {f"kueue.x-k8s.io/{key.replace('_', '-')}": value for key, value in labels.items()}
    return merged(manifest, {"metadata": {"labels": named}})


LARGE: Patch = {"replicas": 101}
_OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "admitted", "uid": "0", "controller": True}


def jobs_by_themselves() -> Iterator[tuple[str, str, Manifest, str]]:
    """Yield attacks on the queue: name, kind, manifest, a text of the refusal."""
    for kind, carrier in CARRIERS.items():
        yield "another queue", kind, _labelled(carrier({}), queue_name="gpu"), "queue-name"
        yield "another's priority", kind, _labelled(carrier({}), priority_class="urgent"), "priority-class"
        owned = merged(carrier({}), {"metadata": {"ownerReferences": [_OWNER]}})
        yield "a forged owner", kind, owned, "ownerReferences"
        held = merged(carrier({}), {"metadata": {"finalizers": ["example.com/mine"]}})
        yield "a finalizer", kind, held, "finalizers"
        large = merged(carrier({}), {"metadata": {"annotations": {"text": "x" * 2**17}}})
        yield "more than the queue can change", kind, large, "Ki characters"
    many = {"Job": {"parallelism": 101}, "JobSet": {"replicatedJobs": [{"replicas": 101}]}}
    many |= {"TrainJob": {"trainer": {"numNodes": 101}}, "MPIJob": {"mpiReplicaSpecs": {"Worker": LARGE}}}
    many |= {"PyTorchJob": {"pytorchReplicaSpecs": {"Worker": LARGE}}}
    for kind, spec in many.items():
        yield "more pods than a job may have", kind, merged(CARRIERS[kind]({}), {"spec": spec}), "job_pods"
    for kind in ("MPIJob", "PyTorchJob"):
        outliving = merged(CARRIERS[kind]({}), {"spec": {"runPolicy": {"cleanPodPolicy": "None"}}})
        yield "workers that outlive the job", kind, outliving, "cleanPodPolicy"
    alone: Manifest = {"spec": {"trainer": {"resourcesPerNode": {"limits": {"cpu": 1}}}}}
    yield "accelerators that no queue counts", "TrainJob", merged(train_job(), alone), "resourcesPerNode"
    lower = pytorch()["spec"]["pytorchReplicaSpecs"]["Worker"]
    uncounted = merged(pytorch(), {"spec": {"pytorchReplicaSpecs": {"worker": lower}}})
    yield "replicas that no queue counts", "PyTorchJob", uncounted, "pytorchReplicaSpecs"
    scaled = {"elasticPolicy": {"maxReplicas": 9, "metrics": [{"type": "Resource"}]}}
    yield "a size that grows", "PyTorchJob", merged(pytorch(), {"spec": scaled}), "elasticPolicy.metrics"
    others = {**_CLAIM, "storageClassName": "", "volumeName": "others"}
    template = {"metadata": {"name": "mine"}, "spec": others}
    claims = {"spec": {"volumeClaimPolicies": [{"templates": [template]}]}}
    yield "a volume made for others", "JobSet", merged(job_set(), claims), "volumeClaimPolicies"
    exclusive = {"metadata": {"annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "zone"}}}
    yield "a domain for oneself", "JobSet", merged(job_set(), exclusive), "exclusive-topology"
    for kind, made in (("MPIJob", mpi()), ("PyTorchJob", pytorch())):
        policy = {"spec": {"runPolicy": {"schedulingPolicy": {"priorityClass": "system-node-critical"}}}}
        yield "priority of the run policy", kind, merged(made, policy), "schedulingPolicy"


def labelled_pods() -> Manifest:
    """Return a TrainJob that only adds a label to its runtime's pods."""
    laid = [{"name": "node", "template": {"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}}}]
    spec = {"template": {"spec": {"replicatedJobs": laid}}}
    patches = [{"manager": "example.com/trial", "trainingRuntimeSpec": spec}]
    return merged(train_job(), {"spec": {"runtimePatches": patches}})


def sdk_job() -> Manifest:
    """Return a job of the Kubeflow SDK: no label, resources by short names, a function as the command."""
    made = train_job(queue=None)
    made["metadata"] = {"name": "trial", "namespace": NAMESPACE}
    made["spec"]["trainer"] = {
        "numNodes": 2,
        "resourcesPerNode": {"requests": GPU, "limits": GPU},
        "command": ["bash", "-c", "torchrun script.py"],
        "env": [{"name": "EPOCHS", "value": "1"}],
    }
    return made
