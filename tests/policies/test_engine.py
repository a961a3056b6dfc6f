"""The policy pack under the real engine: violations are refused before resources are created."""

from __future__ import annotations

import json
from pathlib import Path

import pulumi
import pytest

from tests.policies.engine import PolicyEngine, declare
from tests.policies.test_standing import TLS
from tests.tables import table

pytestmark = pytest.mark.engine

EUROPE = {"trainyard:residency": {"allowed": ["eu-*"]}, "aws:region": "eu-west-1"}
KEY = {"sseAlgorithm": "aws:kms", "kmsMasterKeyId": "alias/data"}
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


def bucket_with_locks(*kinds: str) -> None:
    """Declare a bucket with some of the resources that must be beside it."""
    tags = {"owner": "ml", "cost-center": "42"}
    bucket = declare("aws:s3/bucket:Bucket", "data", tags=tags)
    for kind in kinds:
        name = f"Bucket{kind}"
        declare(f"aws:s3/b{name[1:]}:{name}", kind, bucket=bucket.id, **LOCKS[kind])


def test_a_host_that_saw_no_preview_creates_a_bucket_with_its_companions(engine: PolicyEngine) -> None:
    made = engine.run(lambda: bucket_with_locks(*LOCKS), config=EUROPE, operation="up")
    assert made.succeeded, made.output
    assert set(made.created) == {"data", *LOCKS}


def test_companions_are_judged_at_the_end_of_a_preview_and_of_an_update(engine: PolicyEngine) -> None:
    expected = {("security-bucket-companions", "data")}
    assert engine.run(lambda: bucket_with_locks("Policy"), config=EUROPE).refused() == expected
    updated = engine.run(lambda: bucket_with_locks("Policy"), config=EUROPE, operation="up")
    assert not updated.succeeded
    assert updated.refused() == expected


PUBLIC = {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "*"}


@pytest.mark.parametrize("is_public", [False, True])
def test_a_policy_made_of_outputs_is_judged_in_the_update(engine: PolicyEngine, is_public: bool) -> None:
    """The usual program: key, bucket named by the engine, its policy made of the bucket's ARN, a role."""
    statements = [TLS, PUBLIC] if is_public else [TLS]

    def program() -> None:
        key = declare("aws:kms/key:Key", "key", enableKeyRotation=True)
        bucket = declare("aws:s3/bucket:Bucket", "data", tags={"owner": "ml", "cost-center": "42"})
        encryption = {"sseAlgorithm": "aws:kms", "kmsMasterKeyId": key.id}
        rules = [{"applyServerSideEncryptionByDefault": encryption}]
        locks: dict[str, dict[str, object]] = {**LOCKS, "ServerSideEncryptionConfiguration": {"rules": rules}}
        document = bucket.id.apply(lambda name: json.dumps({"Id": name, "Statement": statements}))
        locks["Policy"] = {"policy": document}
        for kind, props in locks.items():
            declare(f"aws:s3/bucket{kind}:Bucket{kind}", kind, bucket=bucket.id, **props)

    previewed = engine.run(program, config=EUROPE)
    assert previewed.succeeded, previewed.output
    assert ("security-tls", "Policy") in previewed.refused("advisory")
    assert "judged in the update, before it is created" in previewed.message("security-tls", "Policy")
    updated = engine.run(program, config=EUROPE, operation="up")
    assert updated.succeeded is not is_public, updated.output
    assert ("Policy" in updated.created) is not is_public
    assert updated.refused() == ({("security-public-access", "Policy")} if is_public else set())


def test_a_value_unknown_at_preview_is_refused_where_the_stack_says_so(engine: PolicyEngine) -> None:
    def program() -> None:
        other = declare("aws:sqs/queue:Queue", "other")
        declare("aws:sqs/queue:Queue", "somewhere", region=other.id)

    run = engine.run(program, config={**EUROPE, "trainyard:unknown": "refuse"})
    assert not run.succeeded
    assert run.refused() == {("residency-region", "somewhere")}
    assert "region: got a value not known at preview" in run.message("residency-region", "somewhere")


def test_all_policies_advise_and_one_refuses(engine: PolicyEngine) -> None:
    advising = engine.run(queue_abroad, config=EUROPE, pack_config={"all": "advisory"})
    assert advising.succeeded, advising.output
    assert ("residency-region", "abroad") in advising.refused("advisory")
    levels = {"all": "advisory", "residency-region": "mandatory"}
    refusing = engine.run(queue_abroad, config=EUROPE, pack_config=levels)
    assert refusing.refused() == {("residency-region", "abroad")}


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
        "owner": "ml-platform",
        "reason": "forgotten",
        "expires": "2199-01-01",
    }
    config = {**EUROPE, "trainyard:exemptions": [exemption]}
    run = engine.run(lambda: None, config=config, pack_config={"exemptions": {"maximum_days": 100_000}})
    assert run.succeeded
    assert "The exemption of ml-platform for *::gone covers no violation" in run.message(
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
    levels, account = table(__file__)["levels"], table(__file__)["account"]

    def program() -> None:
        protected = pulumi.ResourceOptions(protect=True)
        pulumi.CustomResource("azure-native:storage:StorageAccount", "account", account, protected)

    run = engine.run(program, pack_config=levels, operation="up")
    assert run.succeeded, run.output
    made = run.state["account"]
    assert made["tags"] == {"owner": "data", "cost-center": "4711"}
    assert (made["enableHttpsTrafficOnly"], made["minimumTlsVersion"]) == (True, "TLS1_2")
    assert made["sku"] == {"name": "Standard_ZRS"}
    without = {**levels, "cost-tags": {"enforcementLevel": "remediate", "required": ["cost-center"]}}
    refused = engine.run(program, pack_config=without)
    assert refused.refused() == {("cost-tags", "account")}


def test_a_plan_over_the_ceiling_is_refused_and_nothing_is_created(engine: PolicyEngine) -> None:
    pool = {"name": "gpu", "capacity": "on-demand", "machine": "p5en.48xlarge", "nodes": 3}
    spec = {"target": {"kind": "aws", "region": "eu-north-1"}, "pools": [pool]}

    def program() -> None:
        cluster = pulumi.ComponentResource("trainyard:infra:AwsCluster", "lab", {"stack": spec})
        pulumi.CustomResource("aws:sqs/queue:Queue", "child", {}, pulumi.ResourceOptions(parent=cluster))

    ceiling = {"cost-ceilings": {"monthly_usd": 100_000, "service_prices": {"eks-cluster": 0.1}}}
    run = engine.run(program, config=EUROPE, pack_config=ceiling, operation="up")
    assert run.refused() == {("cost-ceilings", "lab")}
    assert "148,401.70 USD/month for 1 pool and a control plane;" in run.message("cost-ceilings", "lab")
    assert run.created == ()


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
