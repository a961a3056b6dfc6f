"""The plan of the shipped local stack: queues, runtimes, restarts, Pod Security and operators."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.common.names import OWNER_ANNOTATION
from infra.platform.jobs.runtimes import EX_HELD, EX_NO_FABRIC
from infra.stackfile import Stack
from tests.infra.golden import assert_golden
from tests.infra.plan import Plan, plan
from tests.infra.shown import blocks_of
from trainyard_train.contract import (
    EXIT_NOT_DURABLE,
    EXIT_PEER_FAILED,
    EXIT_PREEMPTED,
    EXIT_UNUSABLE,
    EXIT_WRONG_CONFIG,
)


def test_the_plan_of_the_local_stack_is_the_golden_one(local_plan: Plan) -> None:
    assert_golden(blocks_of(local_plan), "local")


def test_the_same_stack_gives_the_same_plan_twice(local: Stack, local_plan: Plan, rendered: Path) -> None:
    assert plan(local, rendered).resources == local_plan.resources


def test_every_object_uses_the_stacks_provider_and_is_deleted_with_the_cluster(local_plan: Plan) -> None:
    cluster = next(each for each in local_plan.resources if each.type == "trainyard:local:EmbeddedCluster")
    objects = [each for each in local_plan.resources if each.type.startswith("kubernetes:")]
    assert len({each.provider for each in objects}) == 1
    assert all(each.provider for each in objects)
    assert {each.deleted_with for each in objects} == {cluster.urn}


def test_a_namespace_that_a_team_names_is_labelled_and_never_made(local: Stack, rendered: Path) -> None:
    labels = {"kueue.openshift.io/managed": "true"}
    named = {"namespace": "team-research", "labels": labels, "annotations": {"owner": "mei"}}
    teams = tuple(team.model_copy(update=named) if team.name == "research" else team for team in local.teams)
    found = plan(local.model_copy(update={"teams": teams}), rendered)
    assert "team-research" not in found.named("Namespace")
    about = found.named("NamespacePatch")["team-research"]["metadata"]
    assert about["annotations"] == {"linkerd.io/inject": "disabled", "owner": "mei"}
    labels |= {"trainyard.dev/team": "research", "istio-injection": "disabled"}
    assert labels.items() <= about["labels"].items()


def test_credentials_are_secret_in_the_state(local_plan: Plan) -> None:
    secrets = {
        each.name: each.secret_outputs for each in local_plan.resources if each.type.endswith(":Secret")
    }
    assert secrets
    assert all("data" in outputs for outputs in secrets.values())
    cluster = next(each for each in local_plan.resources if each.type == "trainyard:local:EmbeddedCluster")
    assert set(cluster.secret_outputs) == {"kubeconfig", "objectStoreAccessKey", "objectStoreSecretKey"}


def fate_of(runtime: Mapping[str, Any], message: str) -> str:
    """Return JobSet's action when a Job has failed with this message by a rule for its pods."""
    for rule in runtime["spec"]["template"]["spec"]["failurePolicy"]["rules"]:
        patterns = rule.get("onJobFailureMessagePatterns", [""])
        if any(re.search(pattern, message) for pattern in patterns):
            return str(rule["action"])
    return "RestartJobSet"


def ended_with(code: int) -> str:
    """Return a Job's message in the form of Kubernetes 1.35."""
    return (
        f"Container node for pod a/b-node-0-0 failed with exit code {code} matching FailJob rule at index 1"
    )


def exit_codes(runtime: Mapping[str, Any]) -> set[int]:
    """Return the exit codes with a separate rule; with any other, a Job exceeds its backoff limit."""
    [job, *_] = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    rules = job["template"]["spec"]["podFailurePolicy"]["rules"]
    assert {rule["action"] for rule in rules} == {"FailJob"}
    return {code for rule in rules for code in rule.get("onExitCodes", {"values": []})["values"]}


@pytest.mark.parametrize("name", ["torch-tcp", "mpi-tcp"])
def test_the_preemption_of_a_spot_node_restarts_the_job_without_counting(local_plan: Plan, name: str) -> None:
    runtime = local_plan.named("ClusterTrainingRuntime")[name]
    disrupted = "Pod team-a/job-node-0-0 has condition DisruptionTarget matching FailJob rule at index 0"
    for output in (disrupted, ended_with(EXIT_PREEMPTED), ended_with(EXIT_PEER_FAILED)):
        assert fate_of(runtime, output) == "RestartJobSetAndIgnoreMaxRestarts"


@pytest.mark.parametrize("name", ["torch-tcp", "mpi-tcp"])
def test_a_job_that_would_end_in_the_same_way_again_is_not_restarted(local_plan: Plan, name: str) -> None:
    runtime = local_plan.named("ClusterTrainingRuntime")[name]
    fails = {EXIT_WRONG_CONFIG, EXIT_UNUSABLE, EXIT_NOT_DURABLE, EX_NO_FABRIC, EX_HELD}
    assert {fate_of(runtime, ended_with(code)) for code in fails} == {"FailJobSet"}
    assert exit_codes(runtime) == {*fails, EXIT_PREEMPTED, EXIT_PEER_FAILED}


def is_of_a_team(manifest: Mapping[str, Any]) -> bool:
    return str(manifest["metadata"]["namespace"]).startswith("team-")


def test_operators_run_on_the_system_pool(local_plan: Plan) -> None:
    deployments = local_plan.named("Deployment")
    of_operators = [each for each in deployments.values() if not is_of_a_team(each)]
    assert len(of_operators) == 6
    for deployment in of_operators:
        selector = deployment["spec"]["template"]["spec"]["nodeSelector"]
        assert selector == {"trainyard.dev/capacity": "system"}


def test_every_object_has_the_mark_of_its_stack(local_plan: Plan) -> None:
    objects = [
        each
        for each in local_plan.resources
        if each.type.startswith("kubernetes:") and not each.type.endswith("Patch")
    ]
    assert len(objects) > 200
    marks = {each.inputs["metadata"]["annotations"][OWNER_ANNOTATION] for each in objects}
    assert marks == {"trainyard/test"}


def test_the_claim_to_the_cluster_precedes_all_objects_and_definitions(local_plan: Plan) -> None:
    claim = next(each for each in local_plan.resources if each.type.endswith(":ClusterClaim"))
    (provider,) = (each for each in local_plan.resources if each.type == "pulumi:providers:kubernetes")
    definitions = [each for each in local_plan.resources if each.type.endswith(":CustomResourceDefinitions")]
    assert definitions
    assert all(claim.urn in each.dependencies for each in [provider, *definitions])
