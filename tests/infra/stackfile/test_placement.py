"""Placement of a stack's job by its declared needs: queue, runtime and pools."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.stackfile import Stack, parse
from infra.stackfile.defaults import completed
from tests.infra.plan import plan, stack_file
from tests.infra.stackfile.wrong import good
from trainyard.jobs.manifest import manifest
from trainyard.jobs.placement import placement_of


def onprem(needs: dict[str, Any], **job: Any) -> Stack:
    """Return a stack with two kinds of NVIDIA pools on one fabric, and a pool of AMD's."""
    data = good("onprem", "amd")
    data["target"]["cluster"] = {"context": "datacenter"}
    return parse({**data, "job": {**data["job"], "needs": needs, **job}})


def gcp_stack(needs: dict[str, Any], **job: Any) -> Stack:
    """Return a stack with TPU slices, GPUs, and machines without accelerators."""
    data = yaml.safe_load(stack_file("gcp-tpu").read_text())["config"]["trainyard:stack"]
    gpus = {"name": "gpus", "capacity": "reserved", "nodes": 2, "machine": "a3-ultragpu-8g"}
    gpus |= {"reservation": {"id": "h200"}}
    cpus = {"name": "cpus", "capacity": "on-demand", "nodes": 2, "machine": "e2-standard-4"}
    asked = {"name": "digits", "team": "research", "config": "digits", "needs": needs, **job}
    return parse(
        {
            **data,
            "pools": [*data["pools"], gpus, cpus],
            "queues": [
                *completed(data).data["queues"],
                {"name": "gpu", "flavors": [{"pool": "gpus", "quota": 16}]},
            ],
            "teams": [{"name": "research", "queue": "tpu", "more_queues": ["gpu"]}],
            "job": asked,
        }
    )


@pytest.mark.parametrize(
    ("needs", "queue", "runtime", "pools"),
    [
        ({}, "nvidia", "torch-ib-shared", ("h100", "h200")),
        ({"accelerator": "h200"}, "nvidia", "torch-ib-shared", ("h200",)),
        ({"memory": "100Gi"}, "nvidia", "torch-ib-shared", ("h200",)),
        ({"memory": "150Gi"}, "amd", "torch-ib-shared-rocm", ("mi300x",)),
        ({"accelerator": "mi300x", "framework": "mpi"}, "amd", "mpi-ib-shared-rocm", ("mi300x",)),
        ({"fabric": "rdma"}, "nvidia", "torch-ib-shared", ("h100", "h200")),
        ({"fabric": "ib-shared-rocm"}, "amd", "torch-ib-shared-rocm", ("mi300x",)),
    ],
)
def test_needs_select_a_queue_a_runtime_and_pools(
    needs: dict[str, Any], queue: str, runtime: str, pools: tuple[str, ...]
) -> None:
    stack = onprem(needs, nodes=2)
    assert stack.placement is not None
    assert (stack.placement.queue, stack.placement.runtime, stack.placement.pools) == (queue, runtime, pools)
    assert stack.job is not None
    assert (stack.job.queue, stack.job.runtime) == (queue, runtime)


def test_size_is_a_need_too() -> None:
    stack = onprem({"memory": "80Gi"}, nodes=4)
    assert stack.placement is not None
    assert stack.placement.pools == ("h100",)


@pytest.mark.parametrize(
    ("needs", "accelerators", "runtime"),
    [
        ({}, 4, "torch-ici"),
        ({"accelerator": "h200"}, 8, "torch-roce"),
        ({"framework": "mpi"}, 8, "mpi-roce"),
        ({"fabric": "ici"}, 4, "torch-ici"),
    ],
)
def test_tpus_and_gpus_are_distinguished(needs: dict[str, Any], accelerators: int, runtime: str) -> None:
    stack = gcp_stack(needs, nodes=2, gpus=accelerators)
    assert stack.job is not None
    assert stack.job.runtime == runtime


def test_pods_are_restricted_to_the_pools_that_fit() -> None:
    stack = onprem({"accelerator": "h200"}, nodes=2)
    assert stack.job is not None
    placement = placement_of(stack)
    assert (placement.local_queue, placement.pools) == ("research", ("h200",))
    (patch,) = manifest(stack.job, "run-001", (), placement)["spec"]["runtimePatches"]
    (node,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    affinity = node["template"]["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "trainyard.dev/pool", "operator": "In", "values": ["h200"]}]


def test_nothing_is_patched_if_all_pools_of_the_queue_fit() -> None:
    stack = onprem({"accelerator": "mi300x"}, nodes=2)
    assert stack.job is not None
    placement = placement_of(stack)
    assert (placement.local_queue, placement.pools) == ("research-amd", ())
    body = manifest(stack.job, "run-001", (), placement)
    assert "runtimePatches" not in body["spec"]
    assert body["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research-amd"
    assert body["spec"]["trainer"]["resourcesPerNode"]["limits"] == {
        "amd.com/gpu": "8",
        "rdma/ib_shared": "1",
    }


def test_a_team_has_a_local_queue_into_each_of_its_queues(rendered: Path) -> None:
    found = plan(onprem({}, nodes=2), rendered).named("LocalQueue")
    assert {name: each["spec"]["clusterQueue"] for name, each in found.items()} == {
        "team-research/default": "nvidia",
        "team-research/research": "nvidia",
        "team-research/research-amd": "amd",
        "team-vision/default": "amd",
        "team-vision/vision": "amd",
    }


def test_a_placed_stack_survives_a_round_trip() -> None:
    stack = onprem({"accelerator": "h200"}, nodes=2)
    assert parse(stack.model_dump(mode="json", by_alias=True)) == stack
