"""The plans of the shipped on-premises stack, and of one with GPUs of two vendors (`mixed`)."""

import json
import re
from pathlib import Path

import yaml

from infra.stackfile import Stack
from tests.infra.evaluated import findings
from tests.infra.golden import assert_golden
from tests.infra.kubeconfigs import TOKEN
from tests.infra.plan import Plan, artifacts, plan
from tests.infra.shown import blocks_of
from trainyard.stack.cluster import operators
from trainyard.stack.cluster.names_taken import planned
from trainyard.stack.preview import declared


def test_the_plan_is_the_golden_one(onprem_plan: Plan) -> None:
    assert_golden(blocks_of(onprem_plan), "onprem")


def test_the_plan_of_mixed_gpus_is_the_golden_one(mixed_plan: Plan) -> None:
    assert_golden(blocks_of(mixed_plan), "mixed-onprem")


def test_the_first_preview_lists_every_resource(mixed: Stack, mixed_plan: Plan, rendered: Path) -> None:
    preview = plan(mixed, rendered, preview=True)
    assert [each.urn for each in preview.resources] == [each.urn for each in mixed_plan.resources]


def test_the_policies_let_the_plans_pass(onprem_plan: Plan, mixed_plan: Plan) -> None:
    assert findings("onprem", onprem_plan) == findings("onprem", mixed_plan) == []


def test_destroy_retains_the_cluster_and_deletes_what_the_stack_added(onprem_plan: Plan) -> None:
    objects = [each for each in onprem_plan.resources if each.type.startswith("kubernetes:")]
    assert {each.deleted_with for each in objects} == {""}


def test_no_credential_of_the_users_kubeconfig_is_in_the_plan(onprem_plan: Plan) -> None:
    (provider,) = (each for each in onprem_plan.resources if each.type == "pulumi:providers:kubernetes")
    config = yaml.safe_load(provider.inputs["kubeconfig"]["value"])
    assert config["clusters"][0]["cluster"] == {"server": "https://cluster.invalid:6443"}
    assert config["users"][0]["user"]["exec"]["args"] == ["credential", "datacenter"]
    texts = repr([[each.inputs, each.wire] for each in onprem_plan.resources]) + repr(onprem_plan.outputs)
    assert "cluster.invalid" in texts and TOKEN not in texts
    # A changed kubeconfig replaces no provider, and so no object.
    assert provider.inputs["clusterIdentifier"] == "datacenter"


def test_the_look_at_a_cluster_knows_the_programs_layers_namespaces_and_objects(
    mixed: Stack, mixed_plan: Plan
) -> None:
    resources = mixed_plan.resources
    layers = {each.type.rpartition(":")[2] for each in resources}
    namespaces = {each.name for each in resources if each.type == "kubernetes:core/v1:Namespace"}
    used = [each for each in operators.OPERATOR_APIS if each.layer and operators.mode_of(mixed, each.key)]
    assert len(used) >= 6
    assert {each.layer for each in used} <= layers
    assert {each.namespace for each in used} <= namespaces
    states = [{"type": each.type, "urn": each.urn, "inputs": each.inputs} for each in resources]
    objects = list(planned(states))
    assert len(objects) > 150
    assert {"Kueue", "GpuOperator", "Queues"} <= {each.layer for each in objects}


def test_the_pods_that_a_look_at_a_cluster_tries_have_no_floats(mixed: Stack, rendered: Path) -> None:
    """The engine's protocol has floats only, and the API server takes none for a port or a user."""
    found = [
        each.inputs
        for each in declared(mixed, artifacts(rendered))
        if each.type.endswith(":ClusterTrainingRuntime")
    ]
    text = json.dumps(found, default=repr)
    assert '"fsGroup": 1000' in text
    assert re.findall(r": (\d+\.\d+)[,}]", text) == []
