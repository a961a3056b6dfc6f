"""Kueue's ClusterQueues: flavors by pool, weights and borrowing in a cohort, jobs without accelerators."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.stackfile import Stack
from infra.stackfile.stack_file import parse
from tests.infra.plan import Plan, plan
from tests.patches import changed

GOOD = yaml.safe_load((Path(__file__).parents[2] / "stackfile" / "queues" / "good.yaml").read_text())


@pytest.fixture(scope="module")
def weighted(rendered: Path) -> Plan:
    return plan(parse(GOOD), rendered)


def flavors(found: Plan, queue: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Return flavor → resource → its quota and limits."""
    [group] = found.named("ClusterQueue")[queue]["spec"]["resourceGroups"]
    for flavor in group["flavors"]:
        assert [each["name"] for each in flavor["resources"]] == group["coveredResources"]
    return {
        flavor["name"]: {
            each["name"]: {key: value for key, value in each.items() if key != "name"}
            for each in flavor["resources"]
        }
        for flavor in group["flavors"]
    }


def test_fair_sharing_is_on_where_a_queue_has_a_weight(weighted: Plan, local_plan: Plan) -> None:
    def settings(found: Plan) -> dict[str, Any]:
        config = found.named("ConfigMap")["kueue-system/kueue-manager-config"]
        read: dict[str, Any] = yaml.safe_load(config["data"]["controller_manager_config.yaml"])
        return read

    assert settings(weighted)["fairSharing"]["preemptionStrategies"]
    assert "fairSharing" not in settings(local_plan)


def test_the_local_queues_of_a_team_that_moves_to_another_queue_are_replaced(local_plan: Plan) -> None:
    """Kueue's webhook refuses another cluster queue in an existing local queue."""
    made = [each for each in local_plan.resources if each.type.endswith(":LocalQueue")]
    assert made
    assert {each.replaced_on for each in made} == {("spec.clusterQueue",)}


def test_a_kueue_of_others_finds_quota_for_all_that_pods_request_and_queues_no_pods_of_ours(
    local: Stack, rendered: Path
) -> None:
    """Its own configuration counts CPU and memory, and queues Deployments where a queue is `default`."""
    existing = local.model_copy(
        update={"operators": local.operators.model_copy(update={"kueue": "existing"})}
    )
    found = plan(existing, rendered)
    requested = {
        name
        for runtime in found.named("ClusterTrainingRuntime").values()
        for requests in re.findall(r"'requests': \{([^}]*)\}", str(runtime))
        for name in re.findall(r"'([^']+)':", requests)
    }
    assert {"cpu", "memory"} <= requested <= set(flavors(found, "gpu")["spot"])
    queues = {name.rpartition("/")[2] for name in found.named("LocalQueue")}
    assert queues
    assert "default" not in queues


def test_only_the_local_queues_of_a_closed_or_expired_team_hold_their_jobs(rendered: Path) -> None:
    teams = {
        "teams[0].closed": "2026-01-01",
        "teams[2].expires": "2026-01-01",
        "teams[1].expires": "2999-12-31",
        "teams[1].owner": "ada@example.com",
    }
    found = plan(parse(changed(GOOD, teams)), rendered)
    made = found.named("LocalQueue")
    held = {name for name, each in made.items() if each["spec"].get("stopPolicy") == "Hold"}
    assert held == {name for name in made if name.startswith(("team-vision/", "team-robots/"))}
    assert len(held) < len(made)
    annotations = found.named("Namespace")[f"team-{GOOD['teams'][1]['name']}"]["metadata"]["annotations"]
    assert annotations["trainyard.dev/team-owner"] == "ada@example.com"
    assert "/" in annotations["trainyard.dev/owner"], "the stack's mark, PROJECT/STACK"
