"""Google Cloud's fake: inputs are validated by the SDK's types, and missing names are generated."""

from collections.abc import Mapping
from typing import Any

import pytest

from rehearsal import sdk
from rehearsal.cloud import RequestedResource
from rehearsal.gcp import discovery
from rehearsal.gcp.project import OUTPUTS, GcpProject
from rehearsal.tables import table
from rehearsal.wire import UNKNOWN
from tests import tables

CASES = tables.table(__file__)


def problems(token: str, inputs: Mapping[str, Any]) -> list[tuple[str, str]]:
    return list(
        GcpProject("example-training", "europe-west1").check(RequestedResource(token, "training", inputs))
    )


@pytest.mark.parametrize(("inputs", "message"), CASES["invalid"])
def test_an_invalid_input_is_refused_at_its_property(inputs: Mapping[str, Any], message: str) -> None:
    assert any(message in reason for _, reason in problems("gcp:compute/router:Router", inputs))


def test_missing_required_inputs_are_refused() -> None:
    assert ("cluster", "is missing") in problems("gcp:container/nodePool:NodePool", {})


@pytest.mark.parametrize(("token", "name"), CASES["names"])
def test_a_name_is_generated_where_the_provider_does_so(token: str, name: str | None) -> None:
    assert GcpProject("example-training", "europe-west1").autoname(token) == name


def test_outputs_and_replacements_are_properties_of_the_sdk() -> None:
    for token, outputs in OUTPUTS.items():
        assert outputs.keys() <= sdk.outputs_of(token).keys(), token
    for token, paths in table("rehearsal.gcp", "replacements").items():
        known, _ = sdk._names(sdk.arguments_of(token))
        assert {path.partition(".")[0] for path in paths} <= known.keys(), token


@pytest.mark.parametrize(("token", "inputs", "path", "word"), tables.table(__file__, "refused_by_gcp"))
def test_a_value_that_is_a_string_in_the_sdk_is_validated_by_the_discovery_documents(
    token: str, inputs: Mapping[str, Any], path: str, word: str
) -> None:
    needed = {"gcp:container/nodePool:NodePool": {"cluster": "training"}}.get(token, {})
    refused = dict(discovery.problems(token, {**needed, **inputs}))
    assert word in refused[path]
    assert len(refused) == 1


def test_an_unknown_value_is_valid_for_any_type() -> None:
    assert not list(discovery.problems("gcp:compute/network:Network", {"routingMode": UNKNOWN}))


def test_an_empty_string_counts_as_missing() -> None:
    placement = {"policyName": "rack", "type": ""}
    pool = {"cluster": "training", "placementPolicy": placement, "maxPodsPerNode": ""}
    assert [path for path, _ in discovery.problems("gcp:container/nodePool:NodePool", pool)] == [
        "maxPodsPerNode"
    ]


def test_the_bucket_is_checked_together_with_its_expiry() -> None:
    condition = {"daysSinceCustomTime": 7}
    rules = [{"action": {"type": "Delete"}, "condition": condition}]
    bucket = {"name": "b-1", "location": "europe-west1", "lifecycleRules": rules}
    assert problems("gcp:storage/bucket:Bucket", bucket) == []
    condition["daysSinceCustomTime"] = 2**40
    ((path, reason),) = problems("gcp:storage/bucket:Bucket", bucket)
    assert path == "lifecycleRules[0].condition.daysSinceCustomTime"
    assert "is allowed" in reason
