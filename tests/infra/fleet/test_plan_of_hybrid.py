"""The plan of the shipped fleet, with fake outputs of its stacks, and mismatches that it refuses."""

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pulumi
import pytest

from infra.fleet.stacks import faults
from infra.program import declare_fleet
from infra.stackfile import Fleet, load_fleet, parse_fleet
from tests.infra.evaluated import findings
from tests.infra.golden import assert_golden
from tests.infra.plan import Plan, record, stack_file
from tests.infra.shown import blocks_of
from tests.tables import table

QUEUE = {"namespace": "team-research", "localQueue": "research", "clusterQueue": "gpu"}
FACTS: Mapping[str, Mapping[str, Any]] = {
    "onprem": {"place": "", "queues": {"research": QUEUE}, "runtimes": ["torch-ib-shared", "mpi-ib-shared"]},
    "aws": {"place": "us-east-2", "queues": {"research": QUEUE}, "runtimes": ["torch-efav3", "mpi-efav3"]},
    "azure": {"place": "westeurope", "queues": {"research": QUEUE}, "runtimes": ["torch-ib-ndr"]},
}
"""The outputs of the fleet's stacks that the fleet reads."""


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return load_fleet(stack_file("hybrid"))


def runtime(image: str) -> dict[str, Any]:
    pod = {"containers": [{"name": "node", "image": image}]}
    node = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
    return {"spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [node]}}}}


EXISTING = {
    **{
        name: {
            "outputs": {**facts, "datasets": {}, "kubeconfig": f"of {name}"},
            "secretOutputNames": ["kubeconfig"],
        }
        for name, facts in FACTS.items()
    },
    "ohio/torch-efav3": runtime(f"ohio.example.com/training@sha256:{0:064}"),
    "amsterdam/torch-ib-ndr": runtime(f"amsterdam.example.com/training@sha256:{0:064}"),
}


def plan_of(fleet: Fleet, existing: Mapping[str, Mapping[str, Any]] = EXISTING) -> Plan:
    return record(lambda: declare_fleet(fleet), existing=existing)


@pytest.fixture(scope="module")
def hybrid(fleet: Fleet) -> Plan:
    return plan_of(fleet)


def edited(fleet: Fleet, **changes: Any) -> Fleet:
    data = fleet.model_dump(mode="json", by_alias=True, exclude_none=True)
    return parse_fleet({**data, **changes})


def test_the_plan_of_the_fleet_is_the_golden_one(hybrid: Plan) -> None:
    assert_golden(blocks_of(hybrid), "hybrid")


def test_the_policies_pass_on_it(hybrid: Plan) -> None:
    assert findings("hybrid", hybrid) == []


def test_a_queue_is_of_the_same_name_on_the_hub_and_on_its_workers(hybrid: Plan) -> None:
    queues = [each for each in hybrid.resources if each.type.endswith(":LocalQueue")]
    by_provider: dict[str, dict[str, str]] = {}
    for each in queues:
        where = each.provider.split("::")[-2]
        by_provider.setdefault(where, {})[each.inputs["metadata"]["name"]] = each.inputs["spec"][
            "clusterQueue"
        ]
    assert by_provider == {
        "hybrid-hub": {"burst": "burst", "personal": "personal"},
        "hybrid-ohio": {"burst": "gpu"},
        "hybrid-amsterdam": {"personal": "gpu"},
    }


def test_a_team_whose_data_may_be_on_one_worker_has_nothing_on_the_other(fleet: Fleet) -> None:
    queues = json.loads(fleet.model_dump_json(exclude_none=True))["queues"]
    queues[0] |= {"teams": ["vision"]}
    queues[1] |= {"datasets": ["patients"]}
    existing = deepcopy(EXISTING)
    for stack in ("onprem", "aws"):
        existing[stack]["outputs"]["queues"] = {"research": QUEUE, "vision": QUEUE}
    existing["azure"]["outputs"]["datasets"] = {"patients": "/mnt/datasets/patients"}
    found = plan_of(edited(fleet, queues=queues), existing)
    has: dict[str, set[str]] = {}
    for each in found.resources:
        if each.inputs.get("metadata", {}).get("namespace") == "team-research":
            has.setdefault(each.provider.split("::")[-2], set()).add(each.type.rpartition(":")[2])
    assert has == {"hybrid-hub": {"LocalQueue"}, "hybrid-amsterdam": {"LocalQueue", "RoleBinding"}}
    assert found.named("MultiKueueConfig")["hub/personal"]["spec"]["clusters"] == ["amsterdam"]


def test_the_hubs_account_has_no_right_to_write_outside_of_its_teams_namespaces(hybrid: Plan) -> None:
    roles = {
        each.urn: each.inputs["rules"] for each in hybrid.resources if each.type.endswith(":ClusterRole")
    }
    assert len(roles) == 4
    for bound in (each for each in hybrid.resources if each.type.endswith(":ClusterRoleBinding")):
        [role] = [roles[urn] for urn in bound.dependencies if urn in roles]
        assert {verb for rule in role for verb in rule["verbs"]} == {"list", "watch"}
    bindings = hybrid.named("RoleBinding")
    assert {binding["metadata"]["namespace"] for binding in bindings.values()} == {"team-research"}
    resources = {name for rules in roles.values() for rule in rules for name in rule["resources"]}
    assert not {"secrets", "pods", "pods/exec", "*"} & resources


def test_no_token_and_no_secret_is_among_the_resources(hybrid: Plan) -> None:
    assert not hybrid.named("Secret")
    tokens = hybrid.named("RotatedKubeconfig")
    assert set(tokens) == {"hybrid-ohio", "hybrid-amsterdam"}
    assert all(token["lifetimeSeconds"] == 86400 for token in tokens.values())
    wires = [str(each.wire) for each in hybrid.resources if each.type.endswith(":RotatedKubeconfig")]
    # The mark of a secret, around each of the two kubeconfigs.
    assert all(wire.count("1b47061264138c4ac30d75fd1eb44270") == 2 for wire in wires)


def test_a_runtime_whose_pods_differ_between_workers_is_refused(fleet: Fleet) -> None:
    queues = json.loads(fleet.model_dump_json(exclude_none=True))["queues"][:1]
    queues[0]["workers"] = ["ohio", "amsterdam"]
    both = edited(fleet, queues=queues, manager={"stack": "onprem", "runtimes": ["torch-efav3"]})
    existing = deepcopy(EXISTING)
    existing["azure"]["outputs"]["runtimes"] = ["torch-efav3"]
    existing["amsterdam/torch-efav3"] = runtime(f"another.example.com/training@sha256:{0:064}")
    with pytest.raises(pulumi.RunError, match="whose containers on amsterdam are not those on ohio"):
        plan_of(both, existing)


def faults_of(fleet: Fleet, **changes: Mapping[str, Any]) -> list[str]:
    """Return the fleet's faults when its stacks have these outputs instead."""
    facts = {name: {"datasets": {}, **FACTS[name], **changes.get(name, {})} for name in FACTS}
    workers = {worker.name: facts[worker.stack] for worker in fleet.workers}
    found = faults(fleet, facts["onprem"], workers)
    return [f"{'.'.join(map(str, path))}: {got}; {allowed}" for path, got, allowed, _ in found]


def test_stacks_that_match_the_fleet_have_no_fault(fleet: Fleet) -> None:
    assert faults_of(fleet) == []


@pytest.mark.parametrize(("stack", "facts", "fault"), table(__file__, "differing"))
def test_a_differing_stack_is_refused(fleet: Fleet, stack: str, facts: Mapping[str, Any], fault: str) -> None:
    found = faults_of(fleet, **{stack: facts})
    assert any(each.startswith(fault) for each in found), found


def test_a_dataset_must_be_on_each_worker_of_the_queue(fleet: Fleet) -> None:
    queues = json.loads(fleet.model_dump_json(exclude_none=True))["queues"]
    queues[0]["datasets"] = ["pile"]
    with_data = edited(fleet, queues=queues)
    assert faults_of(with_data) == ["queues.0.datasets.0: 'pile'; a dataset of ohio's stack: none"]
    assert faults_of(with_data, aws={"datasets": {"pile": "/mnt/datasets/pile"}}) == []


def test_a_preview_reports_mismatches(fleet: Fleet) -> None:
    existing = deepcopy(EXISTING)
    existing["aws"]["outputs"]["place"] = "eu-west-1"
    with pytest.raises(pulumi.RunError, match=r"workers\[0\].place\n  got:     us-east-2"):
        record(lambda: declare_fleet(fleet), preview=True, existing=existing)
