"""The queue and the pools that `trainyard run` chooses for a job, from the objects that a member may read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.clients.kubernetes import Object
from infra.errors import InputError, TrainyardError
from infra.stackfile import JobSpec, parse_job
from infra.stackfile.offer import PoolOffer
from tests.problems import problem_of
from tests.tables import table
from tests.trainyard.jobs.lists import Lists, about, cluster_queue, local_queue, research
from trainyard.jobs.key import CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES
from trainyard.jobs.outlook import outlook_of
from trainyard.jobs.placement import Size, choose, flavors_of

H100 = PoolOffer("h100", 8, "ib-shared", "spot", cpus=19.0, memory_gib=200.0, cloud="onprem", region="")
H200 = replace(H100, accelerator="h200", cpus=18.0)
MI300 = replace(H100, accelerator="mi300x", fabric="ib-shared-rocm", capacity="on-demand")


def flavor(name: str, offer: PoolOffer) -> Object:
    return {"metadata": {"name": name, "annotations": {"trainyard.dev/offer": offer.as_text()}}}


def queue(name: str, **quotas: int) -> Object:
    """Make a queue of the cluster with these pools."""
    made: Any = cluster_queue(name=name)
    [group] = made["spec"]["resourceGroups"]
    group["flavors"] = [
        {"name": pool, "resources": [{"name": "nvidia.com/gpu", "nominalQuota": str(quota)}]}
        for pool, quota in quotas.items()
    ]
    found: Object = made
    return found


def test_a_misspelt_team_is_refused_with_the_existing_teams() -> None:
    cluster = lab()
    cluster.namespaces = ["team-speech", "team-research"]
    problem = problem_of(lambda: flavors_of(cluster, "team-reserch"))
    assert (problem.path, problem.allowed) == ("team", "a team of yours: research, speech")
    assert problem.got.startswith("reserch: ") and "--team NAME" in problem.fix


def lab() -> Lists:
    """A cluster of two queues, of which the one with NVIDIA's pools is the team's first."""
    return Lists(
        {
            LOCAL_QUEUES: [
                {"metadata": about("amd"), "spec": {"clusterQueue": "amd"}},
                {"metadata": about("default"), "spec": {"clusterQueue": "nvidia"}},
                {"metadata": about("research"), "spec": {"clusterQueue": "nvidia"}},
            ],
            CLUSTER_QUEUES: [queue("amd", mi300x=16), queue("nvidia", h100=32, h200=16)],
            FLAVORS: [flavor("h100", H100), flavor("h200", H200), flavor("mi300x", MI300)],
        }
    )


def job(**more: Any) -> JobSpec:
    return parse_job({"name": "tune", "team": "research", "command": ["python", "a.py"], **more})


@pytest.mark.parametrize(("size", "more", "found"), table(__file__, "placements"))
def test_a_job_is_submitted_to_the_first_queue_with_room_for_all_of_it(
    size: dict[str, int], more: dict[str, Any], found: list[Any]
) -> None:
    placed = choose(job(**more), Size(**size), flavors_of(lab(), "team-research"))
    submitted, where = placed.job, placed.placement
    nodes, of_each = submitted.num_nodes, submitted.accelerators_per_node
    assert [nodes, of_each, submitted.runtime, where.local_queue, [*where.pools]] == found


def test_only_pools_that_can_run_the_jobs_nodes_are_offered() -> None:
    """The first fitting pool determines the job's nodes, on which the other pools are judged."""
    single = replace(H100, accelerator="a10", accelerators_per_node=1)
    cluster = lab()
    ladder = queue("nvidia", a10=4, h100=32, small=8, h200=16, rocm=16)
    small = replace(H100, accelerators_per_node=4)
    offers = {"a10": single, "h100": H100, "small": small, "h200": H200, "rocm": MI300}
    cluster.found = {
        LOCAL_QUEUES: [{"metadata": about("default"), "spec": {"clusterQueue": "nvidia"}}],
        CLUSTER_QUEUES: [ladder],
        FLAVORS: [flavor(name, offer) for name, offer in offers.items()],
    }
    flavors = flavors_of(cluster, "team-research")
    placed = choose(job(), Size(gpus=8), flavors)
    assert (placed.job.num_nodes, placed.job.accelerators_per_node) == (1, 8)
    assert placed.placement.pools == ("h100", "h200"), (
        "four nodes of one A10, and nodes of four H100, cannot run it"
    )
    assert [each.pool.name for each in placed.flavors] == ["h100", "h200"]
    where, *lines = outlook_of(cluster, placed)
    assert where == "where  1 × 8 GPUs by queue nvidia, runtime torch-ib-shared"
    assert [line.split()[0] for line in lines] == ["h100:", "h200:", "when", "price", "price"]
    assert choose(job(), Size(gpus=4), flavors).placement.pools == ("a10", "h100", "small", "h200")


def test_a_pod_requests_no_more_than_each_of_its_possible_pools_has() -> None:
    assert choose(job(), Size(gpus=8), flavors_of(lab(), "team-research")).placement.share.cpus == 18.0


def test_a_queue_of_another_team_is_refused_with_the_teams_queues() -> None:
    with pytest.raises(InputError, match=r"tpu, which is not your team's\n.*: nvidia, research, amd\n"):
        choose(job(queue="tpu"), Size(gpus=8), flavors_of(lab(), "team-research"))


@pytest.mark.parametrize(
    ("size", "more", "got"),
    [
        (Size(gpus=40), {}, "40 GPUs"),
        (Size(gpus=5, nodes=2), {}, "5 GPUs on 2 nodes"),
        (Size(gpus=99), {"queue": "amd"}, "99 GPUs, queue amd"),
        (Size(), {"gpus": 16}, "1 nodes with 16 GPUs each"),
        (Size(gpus=8), {"needs": {"accelerator": "b200"}}, "8 GPUs, accelerator: b200, framework: torch"),
    ],
)
def test_a_request_beyond_every_queue_is_refused_with_what_they_have(
    size: Size, more: dict[str, Any], got: str
) -> None:
    problem = problem_of(lambda: choose(job(**more), size, flavors_of(lab(), "team-research")))
    assert problem.got == got
    assert problem.allowed == (
        "h100 of nvidia (32 h100, 8 on a node, ib-shared, spot);"
        " h200 of nvidia (16 h200, 8 on a node, ib-shared, spot);"
        " mi300x of amd (16 mi300x, 8 on a node, ib-shared-rocm, on-demand)"
    )


def test_a_cluster_of_an_earlier_version_is_reported_as_such() -> None:
    with pytest.raises(TrainyardError, match="none whose pools have labels of their machine types"):
        flavors_of(research(queue=cluster_queue()), "team-research")


def test_unknown_keys_in_the_offer_of_a_newer_version_are_ignored() -> None:
    text = H100.as_text().replace("{", '{"moon_phase":"full",', 1)
    assert PoolOffer.read(text) == H100
    with pytest.raises(ValueError, match="missing"):
        PoolOffer.read('{"accelerator": "h100"}')


def test_a_dry_run_shows_queue_start_and_price() -> None:
    priced = replace(H100, cloud="aws", region="us-east-1", machine="p5.48xlarge", capacity="on-demand")
    cluster = Lists(
        {
            LOCAL_QUEUES: [local_queue()],
            CLUSTER_QUEUES: [cluster_queue(quota=32, used=8)],
            FLAVORS: [flavor("spot", priced)],
        }
    )
    placed = choose(job(), Size(gpus=16), flavors_of(cluster, "team-research"))
    where, pool, when, price = outlook_of(cluster, placed)
    assert where == "where  2 × 8 GPUs by queue gpu, runtime torch-ib-shared"
    assert pool == "       spot: 24 of 32 h100 free (on-demand, aws us-east-1)"
    assert when.startswith("when   now to now: ")
    assert price.startswith("price  spot: ") and "USD per hour (price of 20" in price
    unpriced = replace(placed.flavors[0], offer=H100)
    *_, price = outlook_of(cluster, replace(placed, flavors=(unpriced,)))
    assert price == "price  spot: no machine is bought for it"
