"""Typed outputs of the components; `infra/outputs.py` and `infra/fleet/joined.py` give the values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MODULE = "trainyard:index:"
_TEXT = {"type": "string"}
_NUMBER = {"type": "integer"}
_FLAG = {"type": "boolean"}
_ANY = {"$ref": "pulumi.json#/Any"}


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
        "claim": _described(_TEXT, "claim that pods mount"),
        "mount": _described(_TEXT, "where pods have it"),
        "folders": _described(_map(_TEXT), "team → folder"),
    },
    "ObjectStorePlace": {
        "endpoint": _described(_TEXT, "as pods reach it"),
        "bucket": _described(_TEXT, "bucket of checkpoints"),
        "secret": _described(
            _TEXT, "Secret of each team's namespace with the keys; none with a cloud's identity"
        ),
        "outside": _described(_TEXT, "as it is reached from outside, where that differs"),
    },
    "PoolState": {
        "capacity": _described(_TEXT, "spot, on-demand, reserved or system"),
        "nodes": _described(_list(_TEXT), "names of nodes; none where the cloud names them"),
        "acceleratorsPerNode": _described(_NUMBER, "0: takes no jobs"),
        "simulated": _described(_FLAG, "whether its accelerators are a number alone"),
        "preemptionNoticeSeconds": _described(
            _NUMBER, "from notice to loss, s; none where nodes are not taken"
        ),
    },
    "TeamQueue": {
        "namespace": _described(_TEXT, "where the team's jobs are"),
        "localQueue": _described(_TEXT, "what jobs name"),
        "clusterQueue": _described(_TEXT, "where its quota is"),
        "moreLocalQueues": _described(_map(_TEXT), "its other queues"),
    },
    "WorkerState": {
        "place": _described(_TEXT, "region or country"),
        "tokenExpires": _described(_TEXT, "when the hub's token ends"),
    },
    "FleetQueue": {
        "teams": _described(_list(_TEXT), "who may use it"),
        "workers": _described(_list(_TEXT), "where its jobs may run"),
    },
}
"""Type → its properties."""
LEFT_OUT = frozenset({"secret", "outside", "preemptionNoticeSeconds", "moreLocalQueues"})
"""Properties that are not always there."""

OUTPUTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "Cluster": {
        "name": _described(_TEXT, "name of the cluster"),
        "kind": _described(_TEXT, "its target"),
        "place": _described(_TEXT, "region, zone or country; empty where the stack says none"),
        "endpoint": _described(_TEXT, "its API server"),
        "kubeconfig": _described(_TEXT, "how to reach it", secret=True),
        "dataDir": _described(_TEXT, "root of the shared volumes on nodes; empty for a filesystem"),
        "checkpoints": _described(_type("CheckpointsPlace"), "where checkpoints are"),
        "objectStore": _described(_type("ObjectStorePlace"), "the object store of jobs"),
        "datasets": _described(_map(_TEXT), "dataset → path in pods"),
        "pools": _described(_map(_type("PoolState")), "pools by name"),
        "queues": _described(_map(_type("TeamQueue")), "team → where its jobs queue"),
        "priorities": _described(_list(_TEXT), "lowest first"),
        "runtimes": _described(_list(_TEXT), "training runtimes"),
        "job": _described(_ANY, "the job that the stack declares"),
    },
    "Fleet": {
        "name": _described(_TEXT, "name of the fleet"),
        "hub": _described(_TEXT, "stack of the hub"),
        "workers": _described(_map(_type("WorkerState")), "workers by name"),
        "queues": _described(_map(_type("FleetQueue")), "queues by name"),
    },
    "TrainingJob": {
        "name": _described(_TEXT, "name of the TrainJob"),
        "namespace": _described(_TEXT, "its team's"),
        "queue": _described(_TEXT, "local queue that it waits in"),
        "runDir": _described(_TEXT, "folder of its checkpoints, as its pods see it"),
    },
}
"""Component → its outputs. Each is declared by itself: a map that holds one unknown is wholly unknown."""
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
