"""The policy pack under the real engine: violations are refused before resources are created."""

from __future__ import annotations

import json
from pathlib import Path

import pulumi
import pytest

from tests.policies.engine import PolicyEngine, declare

pytestmark = pytest.mark.engine

EUROPE = {"trainyard:residency": {"allowed": ["eu-*"]}, "aws:region": "eu-west-1"}
KEY = {"sseAlgorithm": "aws:kms", "kmsMasterKeyId": "alias/data"}
TLS = {
    "Effect": "Deny",
    "Principal": "*",
    "Action": "s3:*",
    "Resource": "*",
    "Condition": {"Bool": {"aws:SecureTransport": "false"}},
}
BLOCKS = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
LOCKS: dict[str, dict[str, object]] = {
    "ServerSideEncryptionConfiguration": {"rules": [{"applyServerSideEncryptionByDefault": KEY}]},
    "PublicAccessBlock": dict.fromkeys(BLOCKS, True),
    "Policy": {"policy": {"Statement": [TLS]}},
}
"""Resources that an S3 bucket must have beside it."""


def queue_abroad() -> None:
    declare("aws:sqs/queue:Queue", "home")
    declare("aws:sqs/queue:Queue", "abroad", region="us-east-1")


def test_a_resource_outside_its_providers_region_is_refused_at_preview(engine: PolicyEngine) -> None:
    run = engine.run(queue_abroad, config=EUROPE)
    assert not run.succeeded
    assert run.refused() == {("residency-region", "abroad")}
    assert "region: got us-east-1; allowed: eu-*" in run.message("residency-region", "abroad")


def test_no_violating_resource_is_created_even_when_the_preview_is_skipped(engine: PolicyEngine) -> None:
    run = engine.run(queue_abroad, config=EUROPE, operation="up")
    assert not run.succeeded
    assert "abroad" not in run.created


def bucket_with_locks(*kinds: str) -> None:
    """Declare a bucket with some of the resources that must be beside it."""
    tags = {"owner": "ml", "cost-center": "42"}
    bucket = declare("aws:s3/bucket:Bucket", "data", tags=tags)
    for kind in kinds:
        name = f"Bucket{kind}"
        declare(f"aws:s3/b{name[1:]}:{name}", kind, bucket=bucket.id, **LOCKS[kind])


@pytest.mark.parametrize("locks", [(), tuple(LOCKS)], ids=["no locks", "all locks"])
def test_an_update_creates_no_bucket_without_a_preview(engine: PolicyEngine, locks: tuple[str, ...]) -> None:
    skipped = engine.run(lambda: bucket_with_locks(*locks), config=EUROPE, operation="up")
    assert skipped.refused() == {("security-bucket-companions", "data")}
    assert "update: got no preview" in skipped.message("security-bucket-companions", "data")
    assert skipped.created == ()


def test_an_update_creates_a_bucket_that_has_passed_its_preview(engine: PolicyEngine) -> None:
    def program() -> None:
        bucket_with_locks(*LOCKS)

    seen = engine.run(program, config=EUROPE)
    assert seen.succeeded, seen.output
    made = engine.run(program, config=EUROPE, operation="up")
    assert made.succeeded, made.output
    assert set(made.created) == {"data", *LOCKS}


def test_a_refusing_preview_revokes_what_an_earlier_one_has_passed(engine: PolicyEngine) -> None:
    assert engine.run(lambda: bucket_with_locks(*LOCKS), config=EUROPE).succeeded
    assert not engine.run(lambda: bucket_with_locks("Policy"), config=EUROPE).succeeded
    skipped = engine.run(lambda: bucket_with_locks("Policy"), config=EUROPE, operation="up")
    assert not skipped.succeeded
    assert skipped.created == ()


def test_a_value_unknown_at_preview_is_refused_and_named(engine: PolicyEngine) -> None:
    def program() -> None:
        other = declare("aws:sqs/queue:Queue", "other")
        declare("aws:sqs/queue:Queue", "somewhere", region=other.id)

    run = engine.run(program, config=EUROPE)
    assert not run.succeeded
    assert run.refused() == {("residency-region", "somewhere")}
    assert "region: got a value not known at preview" in run.message("residency-region", "somewhere")


def test_the_same_rule_in_the_policy_sdk_ignores_the_unknown_value(engine: PolicyEngine) -> None:
    def program() -> None:
        home = declare("aws:sqs/queue:Queue", "home", region="eu-west-1")
        declare("aws:sqs/queue:Queue", "somewhere", region=home.id)

    run = engine.run(program, config=EUROPE, pack=Path(__file__).parent / "sdk_pack")
    assert run.succeeded
    assert run.refused("advisory") == {("region", "somewhere")}


def test_the_region_of_the_environment_is_the_last_default(engine: PolicyEngine) -> None:
    def program() -> None:
        declare("aws:sqs/queue:Queue", "drifting")

    residency = {"trainyard:residency": EUROPE["trainyard:residency"]}
    assert engine.run(program, config=residency, environment={"AWS_REGION": "eu-north-1"}).succeeded
    abroad = engine.run(program, config=residency, environment={"AWS_REGION": "us-west-2"})
    assert abroad.refused() == {("residency-region", "drifting")}


def test_a_stack_narrows_the_organisations_regions_and_cannot_widen_them(engine: PolicyEngine) -> None:
    organisation = {"residency-declared": {"allowed": ["eu-*"]}}

    def program() -> None:
        declare("aws:sqs/queue:Queue", "ireland", region="eu-west-1")
        declare("aws:sqs/queue:Queue", "sweden", region="eu-north-1")
        declare("aws:sqs/queue:Queue", "virginia", region="us-east-1")

    config = {"trainyard:residency": {"allowed": ["eu-north-1", "us-*"]}}
    run = engine.run(program, config=config, pack_config=organisation)
    assert run.refused() == {("residency-region", "ireland"), ("residency-region", "virginia")}


def test_an_exemption_applies_until_it_expires(engine: PolicyEngine) -> None:
    def exempt(expires: str) -> dict[str, object]:
        exemption = {
            "policy": "residency-region",
            "resource": "aws:sqs/queue:Queue::abroad",
            "owner": "security@example.org",
            "reason": "public data set",
            "expires": expires,
        }
        return {**EUROPE, "trainyard:exemptions": [exemption]}

    current = {"exemptions": {"maximum_days": 100_000}}
    granted = engine.run(queue_abroad, config=exempt("2199-01-01"), pack_config=current)
    assert granted.succeeded
    assert "security@example.org: public data set" in granted.message("residency-region", "abroad")
    lapsed = engine.run(queue_abroad, config=exempt("2020-01-01"))
    assert lapsed.refused() == {("residency-region", "abroad"), ("exemptions", "guarded-test")}


def test_an_exemption_that_matches_nothing_is_reported(engine: PolicyEngine) -> None:
    exemption = {
        "policy": "residency-region",
        "resource": "*::gone",
        "owner": "nobody",
        "reason": "forgotten",
        "expires": "2199-01-01",
    }
    config = {**EUROPE, "trainyard:exemptions": [exemption]}
    run = engine.run(lambda: None, config=config, pack_config={"exemptions": {"maximum_days": 100_000}})
    assert run.succeeded
    assert "The exemption of nobody for *::gone covers no violation" in run.message(
        "residency-region", "guarded-test"
    )


def test_configuration_of_a_policy_that_does_not_exist_stops_the_run(engine: PolicyEngine) -> None:
    run = engine.run(queue_abroad, config=EUROPE, pack_config={"residency-regoin": "disabled"})
    assert not run.succeeded
    assert "residency-regoin" in run.output
    assert "names of policies" in run.output


def test_parameters_are_checked_against_their_schema(engine: PolicyEngine) -> None:
    run = engine.run(queue_abroad, config=EUROPE, pack_config={"residency-declared": {"allowed": "eu-*"}})
    assert not run.succeeded
    assert "residency-declared: allowed: Invalid type" in run.output


def test_remediation_precedes_the_resource_and_changes_nothing_else(engine: PolicyEngine) -> None:
    def program() -> None:
        other = declare("aws:sqs/queue:Queue", "other")
        options = {"httpEndpoint": "enabled", "instanceMetadataTags": other.id}
        declare("aws:ec2/launchTemplate:LaunchTemplate", "nodes", metadataOptions=options)

    refused = engine.run(program, config=EUROPE)
    assert refused.refused() == {("security-instance-metadata", "nodes")}
    level = {"security-instance-metadata": "remediate"}
    run = engine.run(program, config=EUROPE, pack_config=level, operation="up")
    assert run.succeeded, run.output
    options = run.state["nodes"]["metadataOptions"]
    assert options["httpTokens"] == "required"
    assert options["httpEndpoint"] == "enabled"
    assert options["instanceMetadataTags"].startswith("other-")


def test_tags_and_tls_are_remediated_if_the_level_is_remediate(engine: PolicyEngine) -> None:
    account = {
        "location": "westeurope",
        "sku": {"name": "Standard_ZRS"},
        "allowBlobPublicAccess": False,
        "allowSharedKeyAccess": False,
        "publicNetworkAccess": "Disabled",
        "encryption": {"keySource": "Microsoft.Keyvault"},
        "enableHttpsTrafficOnly": False,
        "minimumTlsVersion": "TLS1_0",
        "tags": {"owner": "data"},
    }

    def program() -> None:
        protected = pulumi.ResourceOptions(protect=True)
        pulumi.CustomResource("azure-native:storage:StorageAccount", "account", account, protected)

    levels = {
        "cost-tags": {"enforcementLevel": "remediate", "values": {"owner": "nobody", "cost-center": "4711"}},
        "security-tls": "remediate",
    }
    run = engine.run(program, pack_config=levels, operation="up")
    assert run.succeeded, run.output
    made = run.state["account"]
    assert made["tags"] == {"owner": "data", "cost-center": "4711"}
    assert (made["enableHttpsTrafficOnly"], made["minimumTlsVersion"]) == (True, "TLS1_2")
    assert made["sku"] == {"name": "Standard_ZRS"}
    without = {**levels, "cost-tags": {"enforcementLevel": "remediate"}}
    refused = engine.run(program, pack_config=without)
    assert refused.refused() == {("cost-tags", "account")}


def test_a_plan_over_the_ceiling_is_refused_and_nothing_is_created(engine: PolicyEngine) -> None:
    pool = {"name": "gpu", "capacity": "on-demand", "machine": "p5en.48xlarge", "num_nodes": 3}
    spec = {"target": {"kind": "aws", "region": "eu-north-1"}, "pools": [pool]}

    def program() -> None:
        cluster = pulumi.ComponentResource("trainyard:infra:AwsCluster", "lab", {"stack": spec})
        pulumi.CustomResource("aws:sqs/queue:Queue", "child", {}, pulumi.ResourceOptions(parent=cluster))

    ceiling = {"cost-ceilings": {"monthly_usd": 100_000, "service_prices": {"eks-cluster": 0.1}}}
    run = engine.run(program, config=EUROPE, pack_config=ceiling, operation="up")
    assert run.refused() == {("cost-ceilings", "lab")}
    assert "148,401.70 USD/month for 1 pool and a control plane;" in run.message("cost-ceilings", "lab")
    assert run.created == ()


def test_ceilings_apply_to_the_sum_of_all_clusters(engine: PolicyEngine) -> None:
    pool = {"name": "gpu", "capacity": "on-demand", "machine": "p5en.48xlarge", "num_nodes": 1}
    spec = {"target": {"kind": "aws", "region": "eu-north-1"}, "pools": [pool]}

    def program() -> None:
        for name in ("one", "other"):
            pulumi.ComponentResource("trainyard:infra:AwsCluster", name, {"stack": spec})

    ceiling = {"cost-ceilings": {"hourly_usd": 100, "service_prices": {"eks-cluster": 0.1}}}
    run = engine.run(program, config=EUROPE, pack_config=ceiling)
    (last,) = run.refused()
    assert last in {("cost-ceilings", "one"), ("cost-ceilings", "other")}
    printed = (
        "135.66 USD/h for 1 pool and a control plane, with all declared before; allowed: 100.00 USD/h at most"
    )
    assert printed in run.message(*last)


def test_a_type_named_like_our_component_is_counted_by_the_ceilings(engine: PolicyEngine) -> None:
    pool = {"name": "cpu", "capacity": "on-demand", "machine": "m7i.xlarge", "num_nodes": 1}
    provider = {"kind": "aws", "region": "us-east-1", "existing_cluster": {"name": "shared"}}

    def program() -> None:
        spec = {"target": provider, "pools": [pool]}
        cluster = pulumi.ComponentResource("trainyard:infra:AwsCluster", "lab", {"stack": spec})
        nodes = {
            "region": "us-east-1",
            "instanceTypes": ["m7i.xlarge"],
            "scalingConfig": {"minSize": 0, "maxSize": 9, "desiredSize": 0},
            "tags": {"owner": "ml", "cost-center": "42"},
        }
        kind = "aws:eks/nodeGroup:NodeGroup"
        pulumi.CustomResource(kind, "own", nodes, pulumi.ResourceOptions(parent=cluster))
        pulumi.CustomResource(kind, "trainyard:infra:AwsCluster", nodes)

    ceiling = {"cost-ceilings": {"hourly_usd": 1}}
    run = engine.run(program, pack_config=ceiling)
    refused = {name for policy, name in run.refused() if policy == "cost-ceilings"}
    assert refused == {"trainyard:infra:AwsCluster"}


def test_a_secret_is_evaluated_and_never_printed(engine: PolicyEngine) -> None:
    def program() -> None:
        declare("aws:sqs/queue:Queue", "hidden", region=pulumi.Output.secret("us-east-1"))

    run = engine.run(program, config=EUROPE)
    assert run.refused() == {("residency-region", "hidden")}
    assert "region: got [secret]" in run.message("residency-region", "hidden")


def test_a_component_is_evaluated_by_its_spec_before_it_has_children(engine: PolicyEngine) -> None:
    spec = {
        "pools": [{"name": "cheap", "capacity": "spot", "accelerator": {"model": "simulated"}}],
        "queues": [{"name": "gpu", "flavors": [{"pool": "cheap", "quota": 1}]}],
    }

    def program() -> None:
        cluster = pulumi.ComponentResource("trainyard:infra:LocalCluster", "research", {"stack": spec})
        pulumi.CustomResource("aws:sqs/queue:Queue", "child", {}, pulumi.ResourceOptions(parent=cluster))

    run = engine.run(program, config=EUROPE, operation="up")
    assert run.refused() == {("spot-fallback", "research")}
    assert run.created == ()


def test_reports_are_written_to_the_folder_in_the_environment(engine: PolicyEngine, tmp_path: Path) -> None:
    engine.run(queue_abroad, config=EUROPE, environment={"TRAINYARD_POLICY_REPORTS": str(tmp_path)})
    data = json.loads((tmp_path / "policies.json").read_text())
    assert [violation["policy"] for violation in data["violations"]] == ["residency-region"]
