"""The region of a resource for the policies on residency, and regions that lists permit."""

from dataclasses import replace
from typing import Any

import pytest

from policies.config import EvaluatedStack, Residency
from policies.exemptions import PolicyConfigError
from policies.policy import Provider, Resource
from policies.region import ResourceRegion, canonical, cloud_of, effective_region
from policies.residency.effective_region import POLICY
from policies.unknowns import UNKNOWN, PropertyBlock, UnknownProperty

IN_EUROPE = {"trainyard:residency": '{"allowed": ["eu-*"]}'}


def resource(own: Any = None, provider: Any = None, environment: str = "") -> Resource:
    return Resource(
        "aws:s3/bucket:Bucket",
        "b",
        props=PropertyBlock({"region": own}),
        provider=Provider(props=PropertyBlock({"region": provider}, "provider")),
        stack=EvaluatedStack(environment={"AWS_REGION": environment}),
    )


def effective(subject: Resource) -> ResourceRegion | None:
    cloud = cloud_of(subject)
    assert cloud is not None
    return effective_region(subject, cloud)


def test_the_resources_own_region_comes_before_its_providers_and_the_environments() -> None:
    assert effective(resource("eu-west-1", "us-east-1", "us-west-2")) == ResourceRegion("eu-west-1", "region")
    assert effective(resource(None, "us-east-1", "us-west-2")) == ResourceRegion(
        "us-east-1", "provider.region"
    )
    assert effective(resource(None, None, "us-west-2")) == ResourceRegion("us-west-2", "$AWS_REGION")
    assert effective(resource()) is None


def test_resources_with_no_region_of_their_own_are_where_their_provider_is() -> None:
    """Resources of `aws-native` have no region, so only the provider's is read."""
    for provider, allowed in (("us-east-1", False), ("eu-west-1", True)):
        subject = replace(
            resource(provider=provider), type="aws-native:s3:Bucket", stack=EvaluatedStack(config=IN_EUROPE)
        )
        assert (list(POLICY.evaluate(subject)) == []) is allowed


def test_an_unknown_region_is_not_replaced_by_a_default() -> None:
    with pytest.raises(UnknownProperty, match=r"^region$"):
        effective(resource(UNKNOWN, "eu-west-1"))
    with pytest.raises(UnknownProperty, match=r"^provider\.region$"):
        effective(resource(None, UNKNOWN, "eu-west-1"))


def test_services_without_a_region_have_none() -> None:
    assert cloud_of(Resource("aws:iam/role:Role", "r")) is None
    assert cloud_of(Resource("random:index/randomId:RandomId", "r")) is None


@pytest.mark.parametrize(
    ("name", "same"),
    [("EUROPE-WEST4", "europe-west4"), ("europe-west4-a", "europe-west4"), ("West Europe", "westeurope")],
)
def test_a_region_has_one_canonical_name(name: str, same: str) -> None:
    assert canonical(name) == same


def test_a_stack_can_narrow_but_not_widen() -> None:
    both = Residency(organisation=("eu-*",), stack=("eu-west-1", "us-*"))
    assert both.permits("eu-west-1")
    assert not both.permits("eu-north-1")
    assert not both.permits("us-east-1")
    assert not Residency(stack=()).permits("eu-west-1")


def test_a_jurisdiction_depends_on_a_regions_location_not_on_its_name() -> None:
    union = Residency(stack=("in:eu",))
    assert union.permits("eu-west-1")
    assert union.permits("westeurope")
    assert union.permits("EU")
    assert not union.permits("eu-west-2"), "London"
    assert not union.permits("eu-nowhere-1")
    assert Residency(stack=("in:de", "eu-north-*")).permits("eu-central-1")
    assert not Residency(organisation=("in:eu",), stack=("eu-*",)).permits("eu-central-2"), "Zurich"


def test_a_resource_outside_of_clouds_has_a_country_as_its_region() -> None:
    union = Residency(stack=("in:eu",))
    assert union.permits("de")
    assert not union.permits("us")
    assert not union.permits("ch"), "in Europe, and in no union"
    assert Residency(stack=("in:ch",)).permits("CH")
    assert not Residency(stack=("eu-*",)).permits("de")


def test_an_unknown_jurisdiction_is_refused() -> None:
    stack = EvaluatedStack(config={"trainyard:residency": '{"allowed": ["in:europe"]}'})
    with pytest.raises(
        PolicyConfigError, match=r"trainyard:residency: got 'in:europe'; allowed: in: and one of "
    ):
        _ = stack.residency
