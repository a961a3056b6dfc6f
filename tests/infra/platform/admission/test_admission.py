"""Admission policies for teams and their parameters in the plan; tests/e2e/test_tenancy.py applies them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.platform.admission.jobs import JOB_KINDS, for_every_pod
from infra.platform.admission.parameters import LISTS
from infra.platform.admission.policies import StackRules, manifests
from infra.platform.admission.rules import AdmissionRule, rules_of
from infra.program import declare
from infra.stackfile import Stack, load
from infra.stackfile.admission import AdmissionSpec
from tests.infra.golden import CASES, GOLDEN, assert_matches
from tests.infra.plan import Plan, artifacts, plan, record, stack_file

OF_STACK = {
    "digests": ["true"],
    "grace_seconds": ["420"],
    "regions": ["eu-.*"],
    "registries": ["registry.example.com/teams/"],
    "runtimes": ["torch-distributed=nvidia.com/gpu"],
    "topology_levels": ["kubernetes.io/hostname"],
}


def lists(found: Plan) -> dict[str, list[str]]:
    """`<team>.<list>` → its entries."""
    data = found.named("ConfigMap")["trainyard-admission/teams"]["data"]
    return {key: [each for each in text.split(", ") if each] for key, text in data.items()}


def messages(found: Plan) -> list[str]:
    """Messages of the policy for pods that are created."""
    policy = found.named("ValidatingAdmissionPolicy")["trainyard-teams-pods"]
    return [each["message"] for each in policy["spec"]["validations"]]


@pytest.fixture(scope="module")
def onprem(rendered: Path) -> Plan:
    return plan(load(CASES / "mixed" / "onprem.yaml"), rendered)


def test_every_policy_fails_closed_and_is_bound_to_all_teams(local_plan: Plan) -> None:
    policies = local_plan.named("ValidatingAdmissionPolicy")
    bindings = local_plan.named("ValidatingAdmissionPolicyBinding")
    assert policies.keys() == bindings.keys()
    for name, policy in policies.items():
        spec = policy["spec"]
        assert spec["failurePolicy"] == "Fail"
        [selected] = spec["matchConstraints"]["namespaceSelector"]["matchExpressions"]
        assert selected == {"key": "trainyard.dev/team", "operator": "Exists"}
        binding = bindings[name]["spec"]
        assert binding["paramRef"]["parameterNotFoundAction"] == "Deny"
        assert binding["validationActions"] == ["Deny"]


def test_each_team_has_the_pools_of_its_queues(onprem: Plan) -> None:
    found = lists(onprem)
    assert found["research.pools"] == ["h100"]
    assert found["vision.pools"] == ["mi300x"]
    assert "nvidia.com/gpu" in found["research.taints"]
    assert "nvidia.com/gpu" not in found["vision.taints"]
    assert found["research.queues"] == ["default", "research"]
    assert found["research.fabric_devices"] == [
        f"{queue}: rdma/ib_shared=1" for queue in ("default", "research")
    ]
    assert found["research.daemons"] == []


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("local", {}),
        ("local", {"torch-tcp": 60, "mpi-tcp": 90}),
        ("local", {"torch-tcp": 10, "mpi-tcp": 20}),
        ("coreweave", {}),
    ],
)
def test_pods_may_have_the_longest_grace_that_a_runtime_has_and_no_more(
    name: str, asked: dict[str, int], rendered: Path
) -> None:
    stack = load(stack_file(name))
    found = plan(stack.model_copy(update={"grace_seconds": {**stack.grace_seconds, **asked}}), rendered)
    runtimes = found.named("ClusterTrainingRuntime").values()
    jobs = [job for each in runtimes for job in each["spec"]["template"]["spec"]["replicatedJobs"]]
    pods = [job["template"]["spec"]["template"]["spec"] for job in jobs]
    default = 30  # Kubernetes gives it to the pods of a plain Job
    longest = max(default, *(pod["terminationGracePeriodSeconds"] for pod in pods))
    [refused] = [text for text in messages(found) if text.startswith("terminationGracePeriodSeconds")]
    assert f"at most {longest}, " in refused


def test_images_of_the_stack_are_allowed_whatever_the_registries(local: Stack, rendered: Path) -> None:
    asked = AdmissionSpec(registries=("registry.example.com/training/",), digests=True)
    found = plan(local.model_copy(update={"admission": asked}), rendered)
    registries, digests = (text for text in messages(found) if text.startswith("image: "))
    assert "registries that this stack allows: registry.example.com/training/." in registries
    assert "name it by its digest" in digests
    [image] = lists(found)["research.stack_images"]
    assert image.startswith("trainyard.local/training:")


def test_a_stack_has_no_rules_for_what_it_does_not_restrict(local_plan: Plan) -> None:
    """Each rule that the API server evaluates delays every pod."""
    assert not [text for text in messages(local_plan) if text.startswith(("image: ", "env AWS_REGION"))]


def test_lists_of_the_stack_are_in_the_policies_as_they_are() -> None:
    """Their words are no names of CEL: neither `object` nor `allowed.pools`."""
    prefixes = ["registry.example.com/object/", "registry.example.com/allowed.pools/"]
    [pods, *_] = manifests(JOB_KINDS, StackRules({**OF_STACK, "registries": prefixes}))
    [rule] = [each for each in pods["spec"]["validations"] if "one of the registries" in each["message"]]
    assert json.dumps(prefixes) in rule["expression"]
    assert f"{', '.join(prefixes)}." in rule["message"] and "messageExpression" not in rule


def test_a_residency_that_names_no_region_still_has_its_rule(local: Stack, rendered: Path) -> None:
    found = record(lambda: declare(local, artifacts(rendered), residency=()))
    assert [text for text in messages(found) if text.startswith("env AWS_REGION")]


def test_a_team_has_all_priorities_or_those_that_it_names(local: Stack, rendered: Path) -> None:
    teams = (local.teams[0].model_copy(update={"priorities": ("low",)}), *local.teams[1:])
    found = lists(plan(local.model_copy(update={"teams": teams}), rendered))
    assert found["research.priorities"] == ["low"]
    assert found["platform.priorities"] == ["low", "normal", "high"]


def test_the_stack_may_name_more_controllers_that_create_pods_of_queued_jobs() -> None:
    [pods, *_] = manifests(JOB_KINDS, StackRules(OF_STACK, ["kuberay-operator/kuberay"]))
    variables = {each["name"]: each["expression"] for each in pods["spec"]["variables"]}
    assert "'system:serviceaccount:kuberay-operator:kuberay'" in variables["makes_queued_pods"]
    assert "kuberay" not in str([*manifests(JOB_KINDS, StackRules(OF_STACK))])


def policies() -> list[dict[str, Any]]:
    """Policies of a stack that restricts everything it can."""
    made = manifests(JOB_KINDS, StackRules(OF_STACK))
    return [dict(each) for each in made if each["kind"] == "ValidatingAdmissionPolicy"]


def test_every_list_that_a_rule_reads_is_created_and_declared() -> None:
    used = set()
    for policy in policies():
        declared = {each["name"] for each in policy["spec"]["variables"]}
        text = " ".join(
            each["expression"] for part in ("variables", "validations") for each in policy["spec"][part]
        )
        read = set(re.findall(r"\bvariables\.(\w+)", text))
        assert read <= declared, policy["metadata"]["name"]
        used |= read
    assert set(LISTS) <= used


def test_every_refusal_has_a_fix_within_the_api_servers_limit() -> None:
    for policy in policies():
        names = [each["message"] for each in policy["spec"]["validations"]]
        assert all(20 < len(name) < 350 and "\n" not in name for name in names)
        # Each validation is compiled by itself; the API server takes 1 MiB per object.
        assert len(str(policy)) < 200_000


def test_the_policy_for_pods_is_the_golden_one() -> None:
    [pods] = [each for each in policies() if each["metadata"]["name"] == "trainyard-teams-pods"]
    assert_matches(yaml.safe_dump(pods, width=110, sort_keys=False), GOLDEN / "admission.yaml")


def test_changed_pods_are_held_to_the_same_rules_but_those_of_their_creation() -> None:
    created, changed = (
        {each["message"]: each["expression"] for each in policy["spec"]["validations"]}
        for policy in policies()[:2]
    )
    assert changed.items() <= created.items()
    at_creation = [each for each in (*rules_of("pods"), *rules_of("queued-pods")) if each.of == "created-pod"]
    assert len(created) - len(changed) == len(at_creation) == 2


def test_paths_reach_each_template_of_a_kind() -> None:
    rule = AdmissionRule("pod.spec.hostPID == false", "")
    expressions = {kind.resource: for_every_pod(kind, rule) for kind in JOB_KINDS}
    assert expressions["jobs"].startswith("(object.?spec.?template.optMap(pod, ")
    assert "object.?spec.?replicatedJobs.orValue([]).all(each0, each0.?template" in expressions["jobsets"]
    assert "values0.all(each0, values0[each0].?template.optMap(pod" in expressions["mpijobs"]
    assert expressions["trainjobs"].count("pod.spec.hostPID") == 2
    assert expressions["rayjobs"].count("pod.spec.hostPID") == 3
