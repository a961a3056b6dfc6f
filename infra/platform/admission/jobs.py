"""Kinds of jobs, and the CEL that applies admission rules to the pod templates of each."""

from collections.abc import Sequence
from dataclasses import dataclass

from infra.platform.admission.rules import AdmissionRule, rules_of


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
        f"object.spec.?{field}.orValue({{}}).all(each, each in {list(types)!r})",
        f"{field}: only {', '.join(types)}, in this spelling; the queue would not count other pods.",
    )
    paths, num_nodes = (f"spec.{field}{{}}.template",), _replicas(field)
    return JobKind(resource, "kubeflow.org", ("v1",), paths=paths, num_nodes=num_nodes, own_rules=(counted,))


_PATCH = "spec.runtimePatches[].trainingRuntimeSpec.template.spec.replicatedJobs[].template.spec.template"

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
        own_rules=rules_of("trainjobs"),
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
        own_rules=rules_of("rayjobs"),
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
