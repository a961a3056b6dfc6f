"""Compares the operators of a cluster with the stack file: what `install` would overwrite, and what
`existing` does not serve.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from infra.clients.kubernetes import ApiServer, Object
from infra.errors import Problem
from infra.stackfile import Stack
from trainyard.stack.cluster.owners import is_of, owner_of
from trainyard.stack.cluster.seen import ClusterSeen, Controller


@dataclass(frozen=True)
class OperatorApi:
    """What the platform needs of an operator that others install."""

    title: str
    key: str
    """Key of the stack file with its mode."""
    layer: str
    """Type of the component that installs it; empty for software that comes with a vendor's operator."""
    namespace: str
    """Namespace that the stack would install it into."""
    definition: str
    version: str = ""
    """Version that must be served; empty: any."""
    since: str = ""
    """First release that serves the version with the fields."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Dotted path in the schema → what an older release does without it: API servers drop unknown fields
    silently."""

    @property
    def least(self) -> str:
        """The first release that serves what is needed, in words."""
        return f"{self.title} {self.since} or newer"

    @property
    def image_name(self) -> str:
        """Name of the operator in images: of `operators.mpi` it is `mpi-operator`."""
        name = self.key.partition(".")[2]
        return "mpi-operator" if name == "mpi" else name


_RULES = "spec.failurePolicy.rules.onJobFailureMessagePatterns"
OPERATOR_APIS: Sequence[OperatorApi] = (
    OperatorApi(
        "Kueue", "operators.kueue", "Kueue", "kueue-system", "clusterqueues.kueue.x-k8s.io", "v1beta2", "0.15"
    ),
    OperatorApi(
        "JobSet", "operators.jobset", "Jobset", "jobset-system", "jobsets.jobset.x-k8s.io", "v1alpha2",
        "0.10", {_RULES: "the first lost node would end a job for good"},
    ),
    OperatorApi(
        "Kubeflow Trainer", "operators.trainer", "Trainer", "kubeflow-system",
        "trainjobs.trainer.kubeflow.org", "v1alpha1", "2.2",
        {"spec.runtimePatches": "jobs would lose their pools, Secrets and shared memory"},
    ),
    OperatorApi(
        "the MPI operator", "operators.mpi", "Mpi", "mpi-operator", "mpijobs.kubeflow.org", "v2beta1", "0.3"
    ),
    OperatorApi(
        "NVIDIA's GPU Operator", "target.gpu_operator", "GpuOperator", "gpu-operator",
        "clusterpolicies.nvidia.com",
    ),
    OperatorApi(
        "NVIDIA's Network Operator", "target.network_operator", "NetworkOperator", "nvidia-network-operator",
        "nicclusterpolicies.mellanox.com",
    ),
    OperatorApi(
        "NVIDIA's DRA driver", "target.dra_driver", "DraDriverNvidiaGpu", "dra-driver-nvidia-gpu",
        "computedomains.resource.nvidia.com",
    ),
    OperatorApi(
        "AMD's GPU Operator", "target.amd_operator", "GpuOperatorCharts", "kube-amd-gpu",
        "deviceconfigs.amd.com",
    ),
    OperatorApi(
        "Node Feature Discovery", "target.node_feature_discovery", "", "", "nodefeatures.nfd.k8s-sigs.io"
    ),
)  # fmt: skip
"""Served versions and fields: read in Kueue 0.18.4, JobSet 0.12.0, Trainer 2.3.0 and their changelogs."""


def definitions_asked() -> list[str]:
    """Names of the definitions that the checks read whole."""
    return [each.definition for each in OPERATOR_APIS]


def keys() -> dict[str, str]:
    """Layer, and namespace → key of the stack file."""
    own = [each for each in OPERATOR_APIS if each.layer]
    return {**{each.layer: each.key for each in own}, **{each.namespace: each.key for each in own}}


def mode_of(stack: Stack, key: str) -> str:
    """The mode that the stack file has; empty for a target without the key, or software it has no use for."""
    section, name = key.split(".")
    found = getattr(getattr(stack, section), name, None)
    if section == "target" and found and not _uses(stack, name):
        return ""
    return str(found or "")


def _uses(stack: Stack, name: str) -> bool:
    """Whether the stack's pools have what a vendor's operator is for."""
    models = {pool.accelerator.model for pool in stack.pools if pool.accelerator}
    is_amd = bool(getattr(stack.target, "amd", None))
    if name == "node_feature_discovery":
        vendors = ("target.network_operator", "target.gpu_operator", "target.amd_operator")
        return any(mode_of(stack, key) == "install" for key in vendors)
    if name == "network_operator":
        return getattr(stack.target, "infiniband", None) is not None
    if name == "amd_operator":
        return is_amd
    return bool(models) if name == "gpu_operator" else any("nvl72" in pool.fabric for pool in stack.pools)


def already_there(
    api: ApiServer, stack: Stack, seen: ClusterSeen, owner: str
) -> Iterator[tuple[str, Problem]]:
    """Yield the key and the problem of each operator that `install` would overwrite."""
    for each in OPERATOR_APIS:
        found = seen.definitions.get(each.definition)
        if mode_of(stack, each.key) != "install" or found is None or is_of(found, owner):
            continue
        if each.key.startswith("target.") and _has_made(api, each, owner):
            continue
        served = served_versions(found)
        if each.definition == "mpijobs.kubeflow.org" and each.version not in served:
            got = f"training-operator has its definition, with {', '.join(served)} only"
            fix = "write `operators.mpi: off`, or ask its owner to leave MPIJob out of training-operator"
        else:
            got = f"it is there, of {_whose(found, seen.controller(each.image_name))}"
            fix = f"write `{each.key}: existing`"
        allowed = f"`install` of {each.title} on a cluster without it; nothing was changed"
        yield each.key, Problem(each.key, got, allowed, fix)


def _has_made(api: ApiServer, operator: OperatorApi, owner: str) -> bool:
    """Whether the stack has installed a vendor's operator: of what Helm makes its namespace is marked."""
    vendors = [each.namespace for each in OPERATOR_APIS if each.key.startswith("target.") and each.namespace]
    found = [api.find(f"/api/v1/namespaces/{name}") for name in vendors if operator.namespace in ("", name)]
    return any(is_of(each, owner) for each in found if each)


def _whose(definition: Object, controller: Controller | None) -> str:
    running = f" ({controller.image} in {controller.namespace})" if controller else ""
    return f"{owner_of(definition)}{running}"


def not_served(stack: Stack, seen: ClusterSeen) -> Iterator[Problem]:
    """Yield what `existing` operators do not serve, with the least release that does."""
    for each in OPERATOR_APIS:
        if mode_of(stack, each.key) != "existing":
            continue
        found = seen.definitions.get(each.definition)
        if found is None and each.key.startswith("target."):
            continue  # a stand-alone device plugin serves too
        if found is None:
            got, fix = "it is not in the cluster", f"write `{each.key}: install`, or install it first"
            yield Problem(each.key, got, f"a cluster with {each.title}", fix)
        elif each.version and each.version not in served_versions(found):
            got = f"its {each.definition} serves {', '.join(served_versions(found))}"
            yield Problem(each.key, got, f"{each.version}: {each.least}", f"ask its owner for {each.least}")
        else:
            for path, without in each.fields.items():
                if not _has_field(found, each.version, path):
                    got = f"its {each.definition} has no {path}, which is dropped silently: {without}"
                    yield Problem(each.key, got, each.least, f"ask its owner for {each.least}")


def served_versions(definition: Object) -> list[str]:
    """Versions that a definition serves."""
    return [each["name"] for each in definition["spec"]["versions"] if each["served"]]


def _has_field(definition: Object, version: str, path: str) -> bool:
    schema: Any = next(
        each.get("schema", {}).get("openAPIV3Schema", {})
        for each in definition["spec"]["versions"]
        if each["name"] == version
    )
    for part in path.split("."):
        schema = schema.get("items", schema) if schema.get("type") == "array" else schema
        if schema.get("x-kubernetes-preserve-unknown-fields"):
            return True
        schema = (schema.get("properties") or {}).get(part)
        if schema is None:
            return False
    return True


def kueue_differs(stack: Stack, seen: ClusterSeen) -> Iterator[Problem]:
    """Yield the difference between an existing Kueue's configuration and what the stack's jobs need."""
    if stack.operators.kueue != "existing" or seen.kueue is None:
        return
    merge, why = _wanted(stack, seen.kueue)
    if not merge:
        return
    controller = seen.controller("kueue")
    where = f"ConfigMap {controller.namespace}/kueue-manager-config" if controller else "Kueue's ConfigMap"
    text = yaml.safe_dump(merge, sort_keys=False).rstrip().replace("\n", "\n             ")
    yield Problem(
        path="operators.kueue",
        got="; ".join(why),
        allowed="a Kueue whose configuration admits the stack's jobs, and leaves its own pods alone",
        fix=f"merge this into {where}, and restart Kueue:\n             {text}",
    )


def _wanted(stack: Stack, config: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the part of the configuration to merge, and the reasons."""
    merge: dict[str, Any] = {}
    why: list[str] = []
    operators = stack.operators
    has = list((config.get("integrations") or {}).get("frameworks") or ())
    used = {"trainer.kubeflow.org/trainjob": operators.trainer, "kubeflow.org/mpijob": operators.mpi}
    needed = [kind for kind, mode in used.items() if mode != "off"]
    if missing := [each for each in needed if each not in has]:
        why.append(f"it does not queue {', '.join(missing)}: their pods would be refused as unqueued")
        merge["integrations"] = {"frameworks": [*has, *missing]}
    if config.get("manageJobsWithoutQueueName"):
        why.append("manageJobsWithoutQueueName suspends the stack's own Jobs (folders, datasets)")
        others = {"key": "app.kubernetes.io/managed-by", "operator": "NotIn", "values": ["trainyard"]}
        merge["managedJobsNamespaceSelector"] = {
            "matchExpressions": [*_expressions(config.get("managedJobsNamespaceSelector")), others]
        }
    gates = config.get("featureGates") or {}
    off = ("ElasticJobsViaWorkloadSlices", "ReclaimablePods")
    if on := [name for name in off if gates.get(name)]:
        why.append(f"{', '.join(on)}: a restarted job would run without its quota (kueue#14609)")
        merge["featureGates"] = {**gates, **dict.fromkeys(on, False)}
    if gates.get("TopologyAwareScheduling") is False:
        why.append("TopologyAwareScheduling is off: jobs would be spread over the fabric")
        merge["featureGates"] = {**merge.get("featureGates", gates), "TopologyAwareScheduling": True}
    return merge, why


def _expressions(selector: Mapping[str, Any] | None) -> list[Any]:
    """A selector's conditions; Kueue's own default where it has none (config/v1beta2/defaults.go)."""
    if selector and "matchExpressions" in selector:
        return list(selector["matchExpressions"])
    system = ["kube-system", "kueue-system"]
    return [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": system}]


def controllers_elsewhere(stack: Stack, seen: ClusterSeen) -> Iterator[Problem]:
    """Yield controllers that admission policies would take for users."""
    allowed = set(stack.admission.controllers)
    for each in seen.elsewhere:
        key = "mpi" if each.operator == "mpi-operator" else each.operator
        account = f"{each.namespace}/{each.account}"
        if getattr(stack.operators, key, "") == "existing" and account not in allowed:
            got = f"{each.operator} runs as {account}, whose changes of jobs would be refused"
            line = ", ".join(sorted({*allowed, account}))
            fix = f"write `admission: {{controllers: [{line}]}}`"
            yield Problem("admission.controllers", got, "the accounts of all job controllers", fix)
