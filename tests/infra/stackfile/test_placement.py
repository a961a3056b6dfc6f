"""Placement of a job on a stack by its declared needs: queue, runtime and pools."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.stackfile import Stack, parse, parse_job
from infra.stackfile.defaults import completed
from infra.stackfile.placement import Placement, offers, place
from tests.infra.plan import plan, stack_file
from tests.infra.stackfile.wrong import good
from tests.tables import table


def onprem() -> Stack:
    """Return a stack with two kinds of NVIDIA pools on one fabric, and a pool of AMD's."""
    data = good("onprem", "amd")
    data["target"]["cluster"] = {"context": "datacenter"}
    return parse(data)


def gcp_stack() -> Stack:
    """Return a stack with TPU slices, GPUs, and machines without accelerators."""
    data = yaml.safe_load(stack_file("gcp-tpu").read_text())["config"]["trainyard:stack"]
    gpus = {"name": "gpus", "capacity": "reserved", "nodes": 2, "machine": "a3-ultragpu-8g"}
    gpus |= {"reservation": {"id": "h200"}}
    cpus = {"name": "cpus", "capacity": "on-demand", "nodes": 2, "machine": "e2-standard-4"}
    return parse(
        {
            **data,
            "pools": [*data["pools"], gpus, cpus],
            "queues": [
                *completed(data).data["queues"],
                {"name": "gpu", "flavors": [{"pool": "gpus", "quota": 16}]},
            ],
            "teams": [{"name": "research", "queue": "tpu", "more_queues": ["gpu"]}],
        }
    )


def placed(stack: Stack, needs: dict[str, Any], nodes: int, gpus: int = 8) -> Placement | None:
    """Place a job of the first team, which also is valid on the stack if there is a place."""
    data = {"name": "digits", "team": "research", "args": ["--config", "digits"], "needs": needs}
    job = parse_job({**data, "nodes": nodes, "gpus": gpus}, stack=stack)
    assert job.needs is not None
    return place(job, job.needs, list(offers(stack.teams[0], stack.queues, stack.pools)))


@pytest.mark.parametrize(("needs", "queue", "runtime", "pools"), table(__file__)["needs"])
def test_needs_select_a_queue_a_runtime_and_pools(
    needs: dict[str, Any], queue: str, runtime: str, pools: list[str]
) -> None:
    assert placed(onprem(), needs, 2) == Placement(queue, runtime, tuple(pools))


def test_size_is_a_need_too() -> None:
    found = placed(onprem(), {"memory": "80Gi"}, 4)
    assert found is not None and found.pools == ("h100",)


@pytest.mark.parametrize(("needs", "accelerators", "runtime"), table(__file__)["accelerators"])
def test_tpus_and_gpus_are_distinguished(needs: dict[str, Any], accelerators: int, runtime: str) -> None:
    found = placed(gcp_stack(), needs, 2, accelerators)
    assert found is not None and found.runtime == runtime


def test_a_team_has_a_local_queue_into_each_of_its_queues(rendered: Path) -> None:
    found = plan(onprem(), rendered).named("LocalQueue")
    assert {name: each["spec"]["clusterQueue"] for name, each in found.items()} == {
        "team-research/default": "nvidia",
        "team-research/research": "nvidia",
        "team-research/research-amd": "amd",
        "team-vision/default": "amd",
        "team-vision/vision": "amd",
    }
