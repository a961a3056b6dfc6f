"""The registry of AWS's images: EKS's registry of the region, or a mirror."""

from pathlib import Path

import pytest

import catalog
from infra.stackfile import Stack, parse
from infra.targets.aws.stackfile.registries import ACCOUNTS, PINNED_AT, UNKNOWN, registry_of
from infra.targets.aws.stackfile.target import AwsSpec
from tests.infra.plan import Plan, plan

MIRROR = {"registry": "123456789012.dkr.ecr.us-east-2.amazonaws.com/mirror", "charts": "oci://charts.example"}


@pytest.fixture(scope="module")
def mirrored(aws: Stack, rendered: Path) -> Plan:
    data = aws.model_dump(mode="json", by_alias=True, exclude_none=True)
    data["target"] |= {"mirror": MIRROR, "network": {"nat": "none"}}
    return plan(parse(data), rendered)


def image_of(found: Plan, name: str) -> str:
    image: str = found.named("DaemonSet")[f"kube-system/{name}"]["spec"]["template"]["spec"]["containers"][0][
        "image"
    ]
    return image


def test_the_efa_plugin_comes_from_the_registry_of_the_stacks_region(aws_plan: Plan, aws: Stack) -> None:
    assert isinstance(aws.target, AwsSpec)
    assert aws.target.region != "us-west-2", "where the image is pinned"
    assert image_of(aws_plan, "efa-device-plugin").startswith(f"{registry_of(aws.target.region)}/eks/")


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("us-west-2", PINNED_AT),
        ("eu-north-1", "602401143452.dkr.ecr.eu-north-1.amazonaws.com"),
        ("ap-southeast-3", "296578399912.dkr.ecr.ap-southeast-3.amazonaws.com"),
        ("cn-north-1", "918309763551.dkr.ecr.cn-north-1.amazonaws.com.cn"),
        ("us-gov-west-1", "013241004608.dkr.ecr.us-gov-west-1.amazonaws.com"),
    ],
)
def test_a_registry_is_in_its_region_and_the_domain_of_its_partition(region: str, host: str) -> None:
    assert registry_of(region) == host


def test_accounts_are_of_regions_of_the_catalogue() -> None:
    regions = {region.name for region in catalog.regions("aws")}
    assert {*ACCOUNTS, *UNKNOWN} <= regions
    assert not {*ACCOUNTS} & {*UNKNOWN}


def test_with_a_mirror_all_images_come_from_it(mirrored: Plan) -> None:
    asked = [
        container["image"]
        for each in mirrored.resources
        if each.type.endswith((":Deployment", ":DaemonSet", ":Job"))
        for container in each.inputs["spec"]["template"]["spec"]["containers"]
    ]
    assert len(asked) > 5
    assert {image.partition("/")[0] for image in asked} == {MIRROR["registry"].partition("/")[0]}
    assert not mirrored.named("NatGateway")
