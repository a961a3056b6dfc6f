"""The components' outputs and their types, in the form of a Pulumi schema."""

from collections.abc import Mapping
from typing import Any

MODULE = "trainyard:index:"
_TEXT = {"type": "string"}
_NUMBER = {"type": "integer"}
_FLAG = {"type": "boolean"}


def _map(of: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": of}


def _list(of: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


def _type(name: str) -> dict[str, Any]:
    return {"$ref": f"#/types/{MODULE}{name}"}


def _described(of: Mapping[str, Any], description: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 -- JSON
    return {**of, "description": description, **more}


TYPES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "CheckpointsPlace": {
        "claim": _described(_TEXT, "PersistentVolumeClaim that pods mount"),
        "mount": _described(_TEXT, "mount path in pods"),
        "folders": _described(_map(_TEXT), "team to its folder"),
    },
    "ObjectStorePlace": {
        "endpoint": _described(_TEXT, "URL of the endpoint as seen from pods"),
        "bucket": _described(_TEXT, "bucket of checkpoints"),
        "secret": _described(
            _TEXT, "Secret with the access keys in each team's namespace; not set with workload identity"
        ),
        "outside": _described(_TEXT, "URL of the endpoint from outside of the cluster, if it differs"),
    },
    "PoolState": {
        "capacity": _described(_TEXT, "spot, on-demand, reserved or system"),
        "nodes": _described(_list(_TEXT), "names of the nodes; empty if the cloud names them"),
        "acceleratorsPerNode": _described(_NUMBER, "accelerators per node; 0: the pool runs no jobs"),
        "simulated": _described(_FLAG, "whether the accelerators are simulated"),
        "preemptionNoticeSeconds": _described(
            _NUMBER, "seconds from a preemption notice to the node's termination; not set without preemption"
        ),
    },
    "TeamQueue": {
        "namespace": _described(_TEXT, "namespace of the team's jobs"),
        "localQueue": _described(_TEXT, "local queue that jobs name by default"),
        "clusterQueue": _described(_TEXT, "cluster queue of that local queue"),
        "moreLocalQueues": _described(_map(_TEXT), "the team's further cluster queues to their local queues"),
    },
    "WorkerState": {
        "place": _described(_TEXT, "region or country of the worker"),
        "tokenExpires": _described(_TEXT, "expiry of the manager's token (RFC 3339)"),
    },
    "FleetQueue": {
        "teams": _described(_list(_TEXT), "teams that may use the queue"),
        "workers": _described(_list(_TEXT), "workers that the queue's jobs may run on"),
    },
}
"""Output type → its properties."""
LEFT_OUT = frozenset({"secret", "outside", "preemptionNoticeSeconds", "moreLocalQueues"})
"""Properties that may be absent from an output."""

OUTPUTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "Cluster": {
        "name": _described(_TEXT, "name of the cluster"),
        "kind": _described(_TEXT, "kind of the target"),
        "place": _described(_TEXT, "region, zone or country; empty if the stack declares none"),
        "endpoint": _described(_TEXT, "URL of the API server"),
        "kubeconfig": _described(_TEXT, "kubeconfig of the cluster", secret=True),
        "dataDir": _described(
            _TEXT, "root folder of the shared volumes on the nodes; empty with a shared filesystem"
        ),
        "checkpoints": _described(_type("CheckpointsPlace"), "shared checkpoint volume"),
        "objectStore": _described(_type("ObjectStorePlace"), "object store for checkpoints"),
        "datasets": _described(_map(_TEXT), "dataset to its path in pods"),
        "pools": _described(_map(_type("PoolState")), "pools by name"),
        "queues": _described(_map(_type("TeamQueue")), "team to its namespace and queues"),
        "priorities": _described(_list(_TEXT), "names of the priorities, lowest first"),
        "runtimes": _described(_list(_TEXT), "names of the training runtimes"),
    },
    "Fleet": {
        "name": _described(_TEXT, "name of the fleet"),
        "manager": _described(_TEXT, "name of the manager's stack"),
        "workers": _described(_map(_type("WorkerState")), "workers by name"),
        "queues": _described(_map(_type("FleetQueue")), "queues by name"),
    },
    "TrainingJob": {
        "name": _described(_TEXT, "name of the TrainJob"),
        "namespace": _described(_TEXT, "namespace of the team"),
        "queue": _described(_TEXT, "local queue of the job"),
        "runDir": _described(_TEXT, "path of the job's checkpoints in its pods"),
    },
}
"""Component → its outputs. Each one is declared separately, since a map with one unknown value is unknown."""
NOT_ALWAYS = frozenset({"job"})


def output_types() -> dict[str, Any]:
    """Return the types of outputs as the package's schema has them."""
    return {
        MODULE + name: {
            "type": "object",
            "properties": dict(properties),
            "required": sorted(properties.keys() - LEFT_OUT),
        }
        for name, properties in TYPES.items()
    }
