"""Operators of the platform: order, webhooks, the kinds of jobs that Kueue queues, and Kueue's settings."""

from pathlib import Path

import pulumi
import pytest
import yaml

from infra.common.kubernetes_objects import MANAGED_BY
from infra.platform.operators.kueue import configuration
from infra.stackfile import Stack
from infra.stackfile.operators import OperatorsSpec
from tests.infra.plan import Plan, plan


def with_operators(stack: Stack, operators: OperatorsSpec) -> Stack:
    return stack.model_copy(update={"operators": operators})


@pytest.fixture(scope="module")
def legacy_plan(local: Stack, rendered: Path) -> Plan:
    legacy = OperatorsSpec.model_validate(
        {"training_operator": {"kinds": ("PyTorchJob", "XGBoostJob", "TFJob")}}
    )
    return plan(with_operators(local, legacy), rendered)


def test_a_preview_makes_no_dry_run_on_webhooks_that_do_not_serve_yet(local: Stack, rendered: Path) -> None:
    """The provider makes a dry run of an object unless one of its values is unknown."""
    first, made = (plan(local, rendered, preview=preview) for preview in (True, False))
    for kind in ("Topology", "ResourceFlavor", "ClusterQueue", "LocalQueue", "ClusterTrainingRuntime"):
        owners = [each["metadata"]["labels"][MANAGED_BY] for each in first.named(kind).values()]
        assert owners
        assert all(isinstance(owner, pulumi.output.Unknown) for owner in owners), f"{kind} is tried"
        assert {each["metadata"]["labels"][MANAGED_BY] for each in made.named(kind).values()} == {"trainyard"}


def test_fields_that_an_operator_fills_in_are_not_declared(legacy_plan: Plan) -> None:
    """Else the next `up` would report a change, and replace the object."""
    certificate = legacy_plan.named("Secret")["kubeflow/training-operator-webhook-cert"]
    assert "data" not in certificate


def test_legacy_kinds_are_queued_only_where_they_are_served() -> None:
    def frameworks(operators: OperatorsSpec) -> list[str]:
        found: list[str] = configuration(operators, "local")["integrations"]["frameworks"]
        return found

    legacy = OperatorsSpec.model_validate({"training_operator": {"kinds": ("PyTorchJob",)}})
    assert frameworks(legacy) == [*frameworks(OperatorsSpec()), "kubeflow.org/pytorchjob"]


def test_pods_and_deployments_are_never_queued() -> None:
    queued = configuration(OperatorsSpec(), "local")["integrations"]["frameworks"]
    assert not {"pod", "deployment", "statefulset"} & set(queued)


def test_an_existing_operator_is_not_changed_and_still_used(local: Stack, rendered: Path) -> None:
    found = plan(with_operators(local, OperatorsSpec(kueue="existing")), rendered)
    assert "kueue-system/kueue-controller-manager" not in found.named("Deployment")
    assert "kueue-system" not in found.named("Namespace")
    assert "gpu" in found.named("ClusterQueue")


def test_an_operator_that_is_off_removes_what_depends_on_it(local: Stack, rendered: Path) -> None:
    off = OperatorsSpec(kueue="off", trainer="off")
    stack = with_operators(local, off)
    found = plan(stack, rendered)
    assert not found.named("ClusterQueue")
    assert not found.named("ClusterTrainingRuntime")
    assert found.outputs["runtimes"] == []


def test_controllers_wait_for_all_definitions(local_plan: Plan) -> None:
    definitions = {
        each.urn for each in local_plan.resources if each.type.endswith("CustomResourceDefinitions")
    }
    controllers = [each for each in local_plan.resources if each.type.endswith(":Deployment")]
    waiting = [each for each in controllers if definitions <= set(each.dependencies)]
    assert len(waiting) == 4


def test_webhooks_do_not_wait_for_their_controller(local_plan: Plan) -> None:
    hooks = [each for each in local_plan.resources if "WebhookConfiguration" in each.type]
    assert hooks
    assert not any("Deployment" in urn for each in hooks for urn in each.dependencies)


def test_a_drain_evicts_one_replica_of_an_operator_at_a_time_without_blocking(local_plan: Plan) -> None:
    deployments = {
        name: each["spec"]["selector"]
        for name, each in local_plan.named("Deployment").items()
        if not name.startswith(("trainyard-", "team-"))
    }
    budgets = local_plan.named("PodDisruptionBudget")
    assert {name: each["spec"]["selector"] for name, each in budgets.items()} == deployments
    assert {each["spec"]["maxUnavailable"] for each in budgets.values()} == {1}


def test_kueue_collects_garbage_before_it_exceeds_its_memory_limit(local_plan: Plan) -> None:
    deployment = local_plan.named("Deployment")["kueue-system/kueue-controller-manager"]
    [manager] = deployment["spec"]["template"]["spec"]["containers"]
    assert manager["resources"]["limits"]["memory"] == "2Gi"
    assert {"name": "GOMEMLIMIT", "value": "1600MiB"} in manager["env"]


def test_finished_workloads_are_deleted_after_a_while() -> None:
    policies = configuration(OperatorsSpec(), "local")["objectRetentionPolicies"]
    assert policies == {"workloads": {"afterFinished": "168h0m0s"}}


def test_queues_wait_until_kueue_serves(local_plan: Plan) -> None:
    (topology,) = (each for each in local_plan.resources if each.type.endswith(":Topology"))
    assert any("kueue-system/kueue-controller-manager" in urn for urn in topology.dependencies)
    assert any("ServingWebhooks" in urn for urn in topology.dependencies)


def test_the_timeout_for_pods_to_be_ready_can_be_set() -> None:
    spec = OperatorsSpec.model_validate({"pods_ready": "45m", "pods_recovery": "10m"})
    waiting = configuration(spec, "local", autoscaled=True)["waitForPodsReady"]
    assert (waiting["timeout"], waiting["recoveryTimeout"]) == ("45m", "10m")


def test_a_hubs_workloads_have_its_name_as_origin_and_fabrics_have_no_quota(local_plan: Plan) -> None:
    config = local_plan.named("ConfigMap")["kueue-system/kueue-manager-config"]
    settings = yaml.safe_load(config["data"]["controller_manager_config.yaml"])
    assert settings["multiKueue"] == {"origin": "local"}
    uncounted = settings["resources"]["excludeResourcePrefixes"]
    assert {"vpc.amazonaws.com/efa", "rdma/ib", "hugepages-2Mi"} <= set(uncounted)
    assert not {"nvidia.com/gpu", "amd.com/gpu", "google.com/tpu"} & set(uncounted)
