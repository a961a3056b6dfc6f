"""Admission rules for jobs (queue, priority, size, fabric), and the CEL that applies pod rules to the pod
templates of each job kind.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from infra.common import names
from infra.platform.admission.rules import CLAIM_OF_NO_VOLUME, NO_NEW_FINALIZERS, AdmissionRule, holds_size
from infra.stackfile.job_validators import SECRET_VALUE


@dataclass(frozen=True)
class JobKind:
    """A kind of job. In a path, `[]` stands for each entry of a list, `{}` for each value of a mapping."""

    resource: str
    group: str
    versions: Sequence[str]
    paths: Sequence[str] = ()
    """Paths of complete pod templates."""
    partial_paths: Sequence[str] = ()
    """Paths of overrides of a pod template that another user has written."""
    num_nodes: str = "1"
    """CEL expression of a job's number of nodes."""
    orphans_by_default: bool = False
    """Whether a delete request without a propagation policy orphans the job's pods."""
    own_rules: Sequence[AdmissionRule] = ()
    """Rules of this kind alone."""


def _replicas(field: str) -> str:
    return (
        f"object.spec.?{field}.orValue({{}}).map(role,"
        f" int(object.spec.{field}[role].?replicas.orValue(1))).sum()"
    )


def _legacy(resource: str, field: str, types: Sequence[str] = ("Master", "Worker")) -> JobKind:
    """Return a kind of training-operator's; `types` are the types of replicas whose pods Kueue counts.

    The operator accepts them in any case, and of a TFJob any others, and creates their pods too.
    """
    counted = AdmissionRule(
        "counted-replicas",
        f"object.spec.?{field}.orValue({{}}).all(each, each in {list(types)!r})",
        f"{field}: only {', '.join(types)}, in this spelling; the queue would not count other pods.",
    )
    paths, num_nodes = (f"spec.{field}{{}}.template",), _replicas(field)
    return JobKind(resource, "kubeflow.org", ("v1",), paths=paths, num_nodes=num_nodes, own_rules=(counted,))


_PATCH = "spec.runtimePatches[].trainingRuntimeSpec.template.spec.replicatedJobs[].template.spec.template"

_COUNTED_ACCELERATORS = AdmissionRule(
    "counted-accelerators",
    "[object.spec.?trainer.?resourcesPerNode].all(own, !own.?limits.hasValue() && !own.?requests.hasValue()"
    " || [object.spec.runtimeRef.name + '='].all(runtime,"
    " (allowed.runtimes.exists(each, each.startsWith(runtime))"
    " ? allowed.runtimes.filter(each, each.startsWith(runtime)).map(each, each.substring(size(runtime)))"
    " : allowed.accelerators).all(each, each in own.?limits.orValue({}))))",
    "trainer.resourcesPerNode.limits: name the runtime's accelerators as well ({accelerators}), with 0 for"
    " none; Trainer keeps the runtime's number of those left out, and the queue would count none.",
)
"""Rule for a TrainJob's resources: Trainer 2.3 merges them with the runtime's (kubeflow/trainer#3551), and
Kueue 0.18, built with Trainer 2.2, takes them in place of the runtime's."""

_OWN_CLUSTER = AdmissionRule(
    "own-cluster",
    "size(object.spec.?clusterSelector.orValue({})) == 0",
    "clusterSelector: leave it out, and describe the cluster in rayClusterSpec; the queue passes over jobs of"
    " another job's cluster.",
)
"""Rule for a RayJob: Kueue 0.18 skips those with a selector (rayjob_controller.go, Skip), their submitter's
pods too."""

_NAME = AdmissionRule(
    "name-length",
    "size(object.metadata.name) + size(string(int(object.spec.?trainer.?numNodes.orValue(1)) - 1))"
    " <= (object.spec.runtimeRef.name.startsWith('mpi') ? 45 : 49)",
    "metadata.name: shorten it to 40 characters; names of its pods (NAME-node-0-N-abcde) have 63 at most, and"
    " the queue would admit a job without pods.",
)
"""Rule for a TrainJob: JobSet refuses its JobSet after the admission (jobset_webhook.go, ValidateCreate)."""

JOB_KINDS: Sequence[JobKind] = (
    JobKind(
        "jobs",
        "batch",
        ("v1",),
        paths=("spec.template",),
        num_nodes="object.spec.?parallelism.orValue(1)",
        # pkg/registry/batch/job/strategy.go, DefaultGarbageCollectionPolicy
        orphans_by_default=True,
    ),
    JobKind(
        "jobsets",
        "jobset.x-k8s.io",
        ("v1alpha2",),
        paths=("spec.replicatedJobs[].template.spec.template",),
        num_nodes="object.spec.?replicatedJobs.orValue([]).map(job, int(job.?replicas.orValue(1)) *"
        " int(job.template.spec.?parallelism.orValue(1))).sum()",
    ),
    JobKind(
        "trainjobs",
        "trainer.kubeflow.org",
        ("v1alpha1",),
        partial_paths=(_PATCH,),
        num_nodes="object.spec.?trainer.?numNodes.orValue(1)",
        own_rules=(_COUNTED_ACCELERATORS, _NAME),
    ),
    JobKind(
        "mpijobs",
        "kubeflow.org",
        ("v2beta1",),
        paths=("spec.mpiReplicaSpecs{}.template",),
        num_nodes=_replicas("mpiReplicaSpecs"),
    ),
    _legacy("pytorchjobs", "pytorchReplicaSpecs"),
    _legacy("xgboostjobs", "xgbReplicaSpecs"),
    _legacy("tfjobs", "tfReplicaSpecs", ("Chief", "Evaluator", "Master", "PS", "Worker")),
    _legacy("paddlejobs", "paddleReplicaSpecs"),
    _legacy("jaxjobs", "jaxReplicaSpecs", ("Worker",)),
    JobKind(
        "rayjobs",
        "ray.io",
        ("v1",),
        paths=(
            "spec.rayClusterSpec.headGroupSpec.template",
            "spec.rayClusterSpec.workerGroupSpecs[].template",
            "spec.submitterPodTemplate",
        ),
        own_rules=(_OWN_CLUSTER,),
    ),
)

_TRAINER = (
    "{'metadata': {}, 'spec': {'containers': [{"
    "?'image': object.spec.?trainer.?image, ?'env': object.spec.?trainer.?env,"
    " ?'resources': object.spec.?trainer.?resourcesPerNode}]}}"
)
"""CEL map that presents a TrainJob's `trainer` as the container which overrides the runtime's."""


def for_every_pod(kind: JobKind, rule: AdmissionRule) -> str:
    """Return the CEL expression for: the rule holds for every pod template of a job."""
    partial = () if rule.of == "whole" else kind.partial_paths
    terms = [_for_every(path, _of_pod(rule)) for path in (*kind.paths, *partial)]
    if partial and kind.resource == "trainjobs":
        terms.append(f"[dyn({_TRAINER})].all(pod, {_of_pod(rule)})")
    return " && ".join(f"({term})" for term in terms) or "true"


def _of_pod(rule: AdmissionRule) -> str:
    """Bind the pod's containers to `containers` where the rule uses that name (`all` over one element)."""
    return (
        f"[{_containers('pod')}].all(containers, {rule.holds})" if "containers." in rule.holds else rule.holds
    )


def _containers(pod: str) -> str:
    kinds = ("containers", "initContainers", "ephemeralContainers")
    return " + ".join(f"{pod}.?spec.?{kind}.orValue([])" for kind in kinds)


CONTAINERS_OF_OBJECT = _containers("variables.object")
"""CEL list of all containers of a pod that is evaluated itself."""


def _for_every(path: str, expression: str, root: str = "object", depth: int = 0) -> str:
    """Return the CEL expression for: `expression` holds for each `pod` at the end of the path."""
    ends = [path.index(mark) for mark in ("[]", "{}") if mark in path]
    if not ends:
        optional = "".join(f".?{key}" for key in path.split("."))
        return f"{root}{optional}.optMap(pod, {expression}).orValue(true)"
    head, mark, rest = path[: min(ends)], path[min(ends) : min(ends) + 2], path[min(ends) + 3 :]
    collection = root + "".join(f".?{key}" for key in head.split("."))
    each = f"each{depth}"
    inner = _for_every(rest, expression, each if mark == "[]" else f"values{depth}[{each}]", depth + 1)
    if mark == "[]":
        return f"{collection}.orValue([]).all({each}, {inner})"
    return f"[{collection}.orValue({{}})].all(values{depth}, values{depth}.all({each}, {inner}))"


_MAX_CHARACTERS = 131_072
"""Maximum size of a job's object, as much as Linux allows one argument of a program."""
_QUEUE = "object.metadata.?labels[?'kueue.x-k8s.io/queue-name'].orValue('')"
_CHECKPOINT = f"object.metadata.?annotations[?'{names.CHECKPOINT_ANNOTATION}'].orValue('')"

JOB_RULES: Sequence[AdmissionRule] = (
    AdmissionRule(
        "queue",
        f"{_QUEUE} in allowed.queues",
        "label kueue.x-k8s.io/queue-name: name a queue of this namespace, one of {queues}.",
    ),
    AdmissionRule(
        "priority",
        "object.metadata.?labels[?'kueue.x-k8s.io/priority-class'].orValue(allowed.priorities[0]) in"
        " allowed.priorities",
        "label kueue.x-k8s.io/priority-class: use a priority of this team, one of {priorities}.",
    ),
    AdmissionRule(
        "priority-of-policy",
        "object.spec.?runPolicy.?schedulingPolicy.?priorityClass.orValue('') == ''",
        "runPolicy.schedulingPolicy.priorityClass: leave it out; use the label"
        " kueue.x-k8s.io/priority-class.",
    ),
    AdmissionRule(
        "owner",
        "size(object.metadata.?ownerReferences.orValue([])) == 0 || request.userInfo.username.startsWith("
        "'system:serviceaccount:kube-system:') || (request.operation == 'UPDATE' &&"
        " oldObject.metadata.?ownerReferences == object.metadata.?ownerReferences)",
        "metadata.ownerReferences: leave them out; as the child of an admitted job this one would"
        " bypass its queue.",
    ),
    AdmissionRule(
        "job-finalizers",
        NO_NEW_FINALIZERS,
        "metadata.finalizers: leave them out; a job that cannot be deleted keeps its accelerators.",
    ),
    AdmissionRule(
        "object-size",
        holds_size(_MAX_CHARACTERS),
        f"a job's object: at most {_MAX_CHARACTERS // 1024} Ki characters, or the queue could not change it;"
        " put programs and data into the image, a Secret or the team's volume.",
    ),
    AdmissionRule(
        "no-pods-after-the-end",
        "request.resource.group != 'kubeflow.org'"
        " || object.spec.?runPolicy.?cleanPodPolicy.orValue('None') in ['All', 'Running']",
        "runPolicy.cleanPodPolicy: set Running; pods that outlive the job's end would run on without quota.",
    ),
    AdmissionRule(
        "exclusive-job",
        "!('alpha.jobset.sigs.k8s.io/exclusive-topology' in object.metadata.?annotations.orValue({}))",
        "annotation alpha.jobset.sigs.k8s.io/exclusive-topology: leave it out, it closes a domain to others;"
        " ask for pods close to each other with kueue.x-k8s.io/podset-preferred-topology.",
    ),
    AdmissionRule(
        "checkpoint-time",
        f"[{_CHECKPOINT}].all(said, said == '' || (said.matches('^[0-9]+([.][0-9]+)?$') &&"
        f" [{_QUEUE} + '='].all(queue, allowed.checkpoint_seconds.all(each, !each.startsWith(queue) ||"
        " double(said) <= double(each.substring(size(queue)))))))",
        f"annotation {names.CHECKPOINT_ANNOTATION}: seconds that fit into the notice of the queue's spot"
        " pools, at most {checkpoint_seconds}; make checkpoints faster, or submit to a queue without spot.",
    ),
    AdmissionRule(
        "elastic-policy",
        "!object.spec.?elasticPolicy.?metrics.hasValue()",
        "elasticPolicy.metrics: leave it out; an autoscaler would change the size of a job that its queue has"
        " admitted.",
    ),
    AdmissionRule(
        "claims-of-a-job",
        "object.spec.?volumeClaimPolicies.orValue([]).all(policy, policy.?templates.orValue([]).all(claim,"
        f" {CLAIM_OF_NO_VOLUME}))",
        "volumeClaimPolicies.templates: leave out volumeName, selector and annotations, and give no"
        " storageClassName or one with a name; else the claim could take a volume that was made for others.",
    ),
    AdmissionRule(
        "managed-by",
        "!has(object.spec.managedBy) || request.operation == 'UPDATE' || object.spec.managedBy in"
        " ['kueue.x-k8s.io/multikueue', 'kubernetes.io/job-controller',"
        " 'trainer.kubeflow.org/trainjob-controller',"
        " 'jobset.sigs.k8s.io/jobset-controller']",
        "spec.managedBy: leave it out; the cluster decides which controller runs a job.",
    ),
)
"""Rules for a job object itself, besides its pod templates."""

SIZE_RULE = AdmissionRule(
    "size",
    "{num_nodes} <= int(allowed.job_pods[0])",
    "nodes of a job: this team's jobs may have so many pods: {job_pods} (teams[].limits.job_pods).",
)
"""Rule for a job's number of pods; `{num_nodes}` is the expression of the job's kind."""

_LEVELS = [f"kueue.x-k8s.io/podset-{kind}-topology" for kind in ("preferred", "required", "slice-required")]
POSSIBLE: Sequence[AdmissionRule] = (
    AdmissionRule(
        "accelerators-of-a-node",
        "containers.all(c, allowed.node_accelerators.all(each, [each.split('=')].all(node, quantity(string("
        "c.?resources.?limits[?node[0]].orValue(dyn('0')))).compareTo(quantity(node[1])) <= 0)))",
        "resources.limits: a pod may have what a node of this team's pools has ({node_accelerators}); take"
        " more nodes for more accelerators.",
    ),
    AdmissionRule(
        "topology-levels",
        f"pod.?metadata.?annotations.orValue({{}}).all(key, !(key in {_LEVELS!r})"
        " || pod.metadata.annotations[key] in allowed.topology_levels)",
        "annotations kueue.x-k8s.io/podset-…-topology: name a level of this cluster's topologies, one of"
        " {topology_levels}; the queue would never admit the job.",
        only_with="topology_levels",
    ),
    AdmissionRule(
        "literal-tokens",
        "containers.all(c, c.?env.orValue([]).all(each,"
        f" !each.?value.orValue('').matches({SECRET_VALUE.pattern!r})))",
        "env: a value looks like a token, which all who see the job would read: store it with `trainyard team"
        " secret set NAME`, and refer to it by valueFrom.secretKeyRef (`trainyard run --secret NAME`).",
    ),
)
"""Rules for pod templates of jobs: what no node can ever run, and what nobody should read."""

_USES_FABRIC = (
    "allowed.accelerators.exists(each, quantity(string(c.?resources.?limits[?each].orValue(dyn('0'))))"
    ".isGreaterThan(quantity('0'))) && !c.?env.orValue([]).exists(each, each.name == 'NCCL_NET'"
    " && each.?value.orValue('') == 'Socket')"
)
"""CEL condition that a container `c` has accelerators, and does not say that it means TCP."""


def _in_queue(needs: str, holds: str) -> str:
    """Return the CEL expression for: the condition holds for each `need` that the job's queue lists."""
    return (
        f"size(allowed.{needs}) == 0 || [{_QUEUE} + ': '].all(queue, allowed.{needs}.filter(each,"
        f" each.startsWith(queue)).map(each, each.substring(size(queue))).all(need, {holds}))"
    )


FABRIC_RULES: Sequence[AdmissionRule] = (
    AdmissionRule(
        "fabric",
        _in_queue(
            "fabric_devices",
            f"containers.all(c, !({_USES_FABRIC}) || [need.split('=')].all(part, quantity(string(c.?resources"
            ".?limits[?part[0]].orValue(dyn('0')))).compareTo(quantity(part[1])) >= 0))",
        ),
        "resources.limits: a job of several nodes asks for all devices of its queue's fabric"
        " ({fabric_devices}), or trains over a part of it; to use TCP on purpose, set NCCL_NET: Socket.",
    ),
    AdmissionRule(
        "fabric-parts",
        _in_queue(
            "fabric_parts",
            f"!containers.exists(c, {_USES_FABRIC}) || [need.split('=')].all(part, part[0] == 'annotation'"
            " ? part[1] in pod.?metadata.?annotations.orValue({}) : part[0] == 'container'"
            " ? containers.exists(c, c.name == part[1])"
            " : pod.?spec.?resourceClaims.orValue([]).exists(claim,"
            " claim.?resourceClaimTemplateName.orValue('') == part[1]"
            f" && pod.spec.containers.all(c, !({_USES_FABRIC}) || c.?resources.?claims.orValue([]).exists("
            "each, each.name == claim.name))))",
        ),
        "claims, annotations and containers of a job of several nodes: copy those of its queue's fabric from"
        " the runtime ({fabric_parts}), or set NCCL_NET: Socket to use TCP on purpose.",
        of="whole",
    ),
    AdmissionRule(
        "fabric-settings",
        _in_queue(
            "fabric_settings",
            "containers.all(c, c.?env.orValue([]).exists(each, each.name == 'NCCL_NET'"
            " && each.?value.orValue('') == 'Socket') || c.?env.orValue([]).all(each,"
            " each.?value.orValue('') == '' || (each.name + '=' + each.value != need"
            " && (!need.startsWith(each.name + '!=') || each.name + '!=' + each.value == need))))",
        ),
        "env: remove the variables with which ranks leave their queue's fabric, or GPUDirect"
        " ({fabric_settings}); to use TCP on purpose, set NCCL_NET: Socket.",
    ),
)
"""Rules for jobs of several nodes: with a part of the fabric NCCL is slower, and without it falls back to
TCP, both without an error."""

NETWORK_RULE = AdmissionRule(
    "fabric-network",
    "containers.all(c, size(allowed.fabric_networks) == 0"
    " || !allowed.accelerators.exists(each, each in c.?resources.?limits.orValue({}))"
    " || c.?env.orValue([]).exists(each, each.name == 'NCCL_NET' && (each.?value.orValue('') != ''"
    " || has(each.valueFrom))))",
    "env NCCL_NET: name this pool's network ({fabric_networks}), so that NCCL fails where it would have"
    " trained over TCP; Socket says that TCP is meant.",
    of="whole",
)
"""Rule for jobs of several nodes: with devices but without the image's libraries NCCL uses TCP as well.
With NCCL_NET set, NCCL uses only the named network, which may be a plugin of the image. TrainJobs are
exempt: their runtime sets the network and checks the image."""
