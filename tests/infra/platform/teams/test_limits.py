"""ResourceQuotas and LimitRanges of team namespaces; tests/e2e/test_tenancy.py fills one."""

from pathlib import Path

import pytest
import yaml

from infra.stackfile.stack_file import parse
from tests.infra.plan import Plan, plan
from tests.patches import changed

GOOD = yaml.safe_load((Path(__file__).parents[2] / "stackfile" / "queues" / "good.yaml").read_text())

TEAMS = [team["name"] for team in GOOD["teams"]]


@pytest.fixture(scope="module")
def found(rendered: Path) -> Plan:
    return plan(parse(GOOD), rendered)


def test_a_quota_holds_the_stacks_limits_and_what_the_platform_uses(found: Plan) -> None:
    hard = found.named("ResourceQuota")["team-speech/team"]["spec"]["hard"]
    assert hard == {
        "pods": "64",
        "count/pods": "640",
        "requests.cpu": "64",
        "requests.nvidia.com/gpu": "10",
        "requests.memory": "256Gi",
        "requests.storage": "21Gi",  # 20 of checkpoints, 1 of the training environment
        "count/jobs.batch": "100",
        "count/secrets": "20",
        "count/configmaps": "100",
        "count/services": "100",
        "services.loadbalancers": "0",
        "services.nodeports": "0",
    }


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


def test_quantities_are_written_in_the_form_that_the_api_server_returns(rendered: Path) -> None:
    """The next `up` would report other forms as changed."""
    many = plan(parse(changed(GOOD, {"teams[1].limits.jobs": 2000})), rendered)
    assert many.named("ResourceQuota")["team-speech/team"]["spec"]["hard"]["count/jobs.batch"] == "2k"


def test_containers_without_requests_get_small_ones_and_none_fills_its_node(found: Plan) -> None:
    [container, pod, claim] = found.named("LimitRange")["team-speech/team"]["spec"]["limits"]
    assert container["defaultRequest"] == {"cpu": "50m", "memory": "128Mi", "ephemeral-storage": "0"}
    assert container["max"] == container["default"] == {"ephemeral-storage": "50Gi"}
    assert "memory" not in container["default"], "it would end sound jobs"
    assert pod == {"type": "Pod", "max": {"ephemeral-storage": "200Gi"}}, "of all containers together"
    assert claim == {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}}


def test_jobs_are_held_to_their_size_by_admission(found: Plan) -> None:
    lists = found.named("ConfigMap")["trainyard-admission/teams"]["data"]
    assert (lists["speech.job_pods"], lists["vision.job_pods"]) == ("8", "100")
