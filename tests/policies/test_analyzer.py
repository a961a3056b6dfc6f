"""The pack's analyzer service: its configuration, exemptions, and policies that sum over resources."""

import json
from typing import NoReturn, cast

import grpc
import pytest
from pulumi.runtime.proto import analyzer_pb2

from policies.analyzer import Analyzer
from policies.pack import POLICIES


class AbortedError(Exception):
    """The call was aborted."""


class AbortingCall:
    def abort(self, code: grpc.StatusCode, message: str) -> NoReturn:
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        raise AbortedError(message)


BUCKET = "aws:s3/bucket:Bucket"
CONTEXT = cast(grpc.ServicerContext, AbortingCall())


def configured(**config: object) -> Analyzer:
    analyzer = Analyzer(POLICIES)
    texts = {f"trainyard:{key}": json.dumps(value) for key, value in config.items()}
    request = analyzer_pb2.AnalyzerStackConfigureRequest(project="p", stack="s", config=texts, dry_run=True)
    analyzer.ConfigureStack(request, CONTEXT)
    analyzer.Configure(analyzer_pb2.ConfigureAnalyzerRequest(), CONTEXT)
    return analyzer


def exemption(policy: str) -> dict[str, str]:
    words = {"owner": "security", "reason": "agreed in review", "expires": "2199-01-01"}
    return {"policy": policy, "resource": "*::agreed", **words}


def test_every_policy_is_registered_with_the_engine() -> None:
    info = Analyzer(POLICIES).GetAnalyzerInfo(None, CONTEXT)
    assert [policy.name for policy in info.policies] == [policy.name for policy in POLICIES]
    assert all(policy.remediation_steps and policy.severity for policy in info.policies)


def test_an_exemption_from_a_policy_that_does_not_exist_stops_the_run() -> None:
    with pytest.raises(AbortedError, match="residency-regoin"):
        configured(exemptions=[exemption("residency-regoin")])


def test_the_policy_on_exemptions_has_no_exemptions() -> None:
    with pytest.raises(AbortedError, match="got policy 'exemptions'"):
        configured(exemptions=[exemption("exemptions")])


def test_invalid_regions_stop_the_run() -> None:
    with pytest.raises(AbortedError, match=r"allowed: \{allowed: "):
        configured(residency=["eu-*"])


def test_a_valid_configuration_reaches_the_policies() -> None:
    analyzer = configured(residency={"allowed": ["eu-*"]})
    assert analyzer.stack.residency.permits("eu-west-1")
    assert not analyzer.stack.residency.permits("us-east-1")


def test_only_the_pool_that_exceeds_the_stacks_ceiling_is_refused() -> None:
    analyzer = Analyzer(POLICIES)
    ceilings = analyzer_pb2.ConfigureAnalyzerRequest()
    ceilings.policyConfig["cost-ceilings"].enforcementLevel = analyzer_pb2.MANDATORY
    ceilings.policyConfig["cost-ceilings"].properties.update({"hourly_usd": 140})
    analyzer.Configure(ceilings, CONTEXT)
    groups = [node_group(f"pool-{index}") for index in (0, 1, 1, 2)]
    diagnostics = [analyzer.Analyze(group, CONTEXT).diagnostics for group in groups]
    assert [len(found) for found in diagnostics] == [0, 0, 0, 1]
    message = "203.19 USD/h for 1 pool, with all declared before; allowed: 140.00 USD/h at most"
    assert message in diagnostics[-1][0].message


def test_a_bucket_that_the_program_only_reads_needs_no_locks() -> None:
    analyzer = configured()
    made, read = (
        analyzer_pb2.AnalyzerResource(type=BUCKET, name=name, urn=f"urn:pulumi:s::p::{BUCKET}::{name}")
        for name in ("made", "read")
    )
    analyzer.Analyze(analyzer_pb2.AnalyzeRequest(type=BUCKET, name="made", urn=made.urn), CONTEXT)
    answer = analyzer.AnalyzeStack(analyzer_pb2.AnalyzeStackRequest(resources=[made, read]), CONTEXT)
    assert {(each.policyName, each.urn) for each in answer.diagnostics} == {
        ("security-bucket-companions", made.urn)
    }


def node_group(name: str) -> analyzer_pb2.AnalyzeRequest:
    request = analyzer_pb2.AnalyzeRequest(
        type="aws:eks/nodeGroup:NodeGroup",
        name=name,
        urn=f"urn:pulumi:s::p::aws:eks/nodeGroup:NodeGroup::{name}",
    )
    request.properties.update(
        {
            "region": "eu-north-1",
            "instanceTypes": ["p5en.48xlarge"],
            "subnetIds": ["subnet"],
            "launchTemplate": {"id": "lt"},
            "scalingConfig": {"minSize": 0, "maxSize": 1},
            "tags": {"owner": "ml", "cost-center": "42"},
        }
    )
    return request
