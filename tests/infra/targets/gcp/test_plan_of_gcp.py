"""The plans of the shipped Google Cloud stacks."""

import json
from pathlib import Path

from infra.common.artifacts import ROOT
from infra.stackfile import Stack
from infra.targets.gcp.stackfile.target import GcpSpec
from rehearsal import sdk
from tests.infra.evaluated import assert_sound, findings
from tests.infra.fates import assert_all_data_is_known, assert_guide_tells_fates
from tests.infra.golden import assert_golden
from tests.infra.plan import Plan, cluster_plan
from tests.infra.shown import blocks_of
from tests.infra.targets.gcp.answers import CERTIFICATE
from tests.infra.targets.gcp.stacks import with_provider


def test_the_plan_of_the_gcp_stack_is_the_golden_one(gcp_plan: Plan) -> None:
    assert_golden(blocks_of(gcp_plan), "gcp")


def test_the_plan_of_the_tpu_stack_is_the_golden_one(tpu_plan: Plan) -> None:
    assert_golden(blocks_of(tpu_plan), "gcp-tpu")


def test_the_plans_are_sound(gcp: Stack, gcp_plan: Plan, tpu: Stack, tpu_plan: Plan, rendered: Path) -> None:
    for name, stack, found in (("gcp", gcp, gcp_plan), ("gcp-tpu", tpu, tpu_plan)):
        assert_sound(name, stack, found, rendered, "gcp:container/cluster:Cluster")


def test_the_policies_see_data_that_leaves_the_region(gcp: Stack, rendered: Path) -> None:
    elsewhere = with_provider(gcp, region="us-central1", zones=("us-central1-a",))
    refused = " ".join(findings("gcp", cluster_plan(elsewhere, rendered)))
    for kind in ("Cluster::", "NodePool::", "Bucket::", "KeyRing::", "Subnetwork::"):
        assert kind in refused


def test_the_kubeconfig_has_the_address_where_the_dns_endpoint_is_off(gcp: Stack, rendered: Path) -> None:
    assert isinstance(gcp.target, GcpSpec)
    access = gcp.target.access.model_copy(update={"dns_endpoint": False})
    found = cluster_plan(with_provider(gcp, access=access), rendered)
    (provider,) = (each for each in found.resources if each.type == "pulumi:providers:kubernetes")
    (cluster,) = json.loads(provider.inputs["kubeconfig"]["value"])["clusters"]
    assert cluster["cluster"] == {"server": "https://10.64.0.2", "certificate-authority-data": CERTIFICATE}


def test_without_protection_cluster_and_filesystem_can_be_deleted_and_data_is_retained(
    gcp: Stack, gcp_plan: Plan, rendered: Path
) -> None:
    def kinds(found: Plan, *, retained: bool) -> set[str]:
        of_cloud = [each for each in found.resources if each.type.startswith("gcp:")]
        return {e.type.rpartition(":")[2] for e in of_cloud if (e.retained if retained else e.protect)}

    assert kinds(gcp_plan, retained=False) == {"Cluster", "CryptoKey", "Bucket", "Instance"}
    open_plan = cluster_plan(with_provider(gcp, deletion_protection=False), rendered)
    assert not kinds(open_plan, retained=False)
    assert open_plan.named("Cluster")["training"]["deletionProtection"] is False
    retained_kinds = kinds(open_plan, retained=True)
    assert {"Bucket", "CryptoKey", "KeyRing", "Folder"} <= retained_kinds
    assert "Instance" not in retained_kinds


def test_break_glass_members_may_grant_themselves_all_rights_for_an_hour_with_a_reason(
    gcp: Stack, gcp_plan: Plan, rendered: Path
) -> None:
    assert isinstance(gcp.target, GcpSpec)
    on_call = "group:on-call@example.com"
    access = gcp.target.access.model_copy(update={"break_glass": (on_call,)})
    plan = cluster_plan(with_provider(gcp, access=access), rendered)
    kind = "gcp:privilegedaccessmanager/entitlement:entitlement"
    (made,) = (each for each in plan.resources if each.type == kind)
    assert_golden(blocks_of(plan, "entitlement"), "break-glass-gcp")
    # Before that they have no rights; the entitlement is in no region, and the policies accept it.
    assert not [each for each in plan.resources if each.inputs.get("member") == on_call]
    assert findings("gcp", plan) == []
    assert list(sdk.problems(made.type, made.inputs)) == []
    assert kind not in {each.type for each in gcp_plan.resources}


def test_all_data_is_known_and_the_guide_says_what_becomes_of_it(gcp_plan: Plan) -> None:
    assert_all_data_is_known(gcp_plan, "gcp")
    assert_guide_tells_fates(gcp_plan, "gcp", ROOT / "docs" / "gcp.md")
