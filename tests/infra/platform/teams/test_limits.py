"""ResourceQuotas and LimitRanges of team namespaces; tests/e2e/test_tenancy.py fills one."""

from pathlib import Path

import pytest
import yaml

from infra.stackfile.stack_file import parse
from tests.infra.golden import assert_golden
from tests.infra.plan import Plan, plan
from tests.infra.shown import blocks_of
from tests.patches import changed

GOOD = yaml.safe_load((Path(__file__).parents[2] / "stackfile" / "queues" / "good.yaml").read_text())

TEAMS = [team["name"] for team in GOOD["teams"]]


@pytest.fixture(scope="module")
def found(rendered: Path) -> Plan:
    return plan(parse(GOOD), rendered)


def test_limits_and_queues_are_those_of_the_stack_file(found: Plan) -> None:
    held = blocks_of(found, "ResourceQuota", "LimitRange", "ClusterQueue", "trainyard-admission/teams")
    assert_golden(held, "queues-local")


def test_a_teams_quota_of_accelerators_is_what_its_queues_allow(found: Plan, local_plan: Plan) -> None:
    """Terminating pods count, although Kueue has freed their quota. The stack has 16 accelerators."""
    name = "requests.nvidia.com/gpu"
    hard = {team: found.named("ResourceQuota")[f"team-{team}/team"]["spec"]["hard"][name] for team in TEAMS}
    assert hard == {
        "vision": "10",  # spot 4 + 2 borrowed, on-demand 2 + 2 borrowed
        "speech": "10",  # spot 2 + 4, on-demand 4 and nothing borrowed
        "robots": "12",  # speech's, and 2 on-demand of the team's queue
    }
    for quota in local_plan.named("ResourceQuota").values():
        assert name not in quota["spec"]["hard"], "its queue has all accelerators of the stack"


def test_custom_resources_are_counted_where_the_stack_limits_them(rendered: Path) -> None:
    """By default none is: the first jobs of a new cluster would be refused."""
    legacy = {"training_operator": {"kinds": ["PyTorchJob"]}}
    limited = changed(GOOD, {"teams[1].limits.custom_jobs": 50, "operators": legacy})
    hard = plan(parse(limited), rendered).named("ResourceQuota")["team-speech/team"]["spec"]["hard"]
    assert {name: number for name, number in hard.items() if "." in name and name.startswith("count/")} == {
        "count/jobs.batch": "100",
        "count/jobsets.jobset.x-k8s.io": "50",
        "count/trainjobs.trainer.kubeflow.org": "50",
        "count/mpijobs.kubeflow.org": "50",
        "count/pytorchjobs.kubeflow.org": "50",
    }
