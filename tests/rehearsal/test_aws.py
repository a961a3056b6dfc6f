"""AWS's fake: its requests to moto, and the partition of its account."""

import pytest

from rehearsal.aws.account import ACCOUNT, MotoAccount
from rehearsal.aws.requests import requests
from rehearsal.cloud import RequestedResource


@pytest.mark.parametrize(
    ("region", "parameters"),
    [
        ("us-east-1", {}),  # the only region that S3 refuses as a location constraint
        ("us-gov-west-1", {"CreateBucketConfiguration": {"LocationConstraint": "us-gov-west-1"}}),
    ],
)
def test_a_bucket_is_requested_with_its_region(region: str, parameters: dict[str, object]) -> None:
    (request,) = requests("aws:s3/bucket:Bucket", "bucket", {"bucket": "checkpoints", "region": region})
    assert request.parameters == {"Bucket": "checkpoints", **parameters}


@pytest.mark.parametrize(("region", "partition"), [("us-gov-west-1", "aws-us-gov"), ("us-east-2", "aws")])
def test_an_account_is_in_the_partition_of_its_region(region: str, partition: str) -> None:
    trust = '{"Version": "2012-10-17", "Statement": []}'
    with MotoAccount(region) as account:
        role = account.create(
            RequestedResource("aws:iam/role:Role", "node", {"name": "node", "assumeRolePolicy": trust})
        )
        policy = f"arn:{partition}:iam::aws:policy/AmazonEKSWorkerNodePolicy"
        attached = {"role": "node", "policyArn": policy}
        account.create(
            RequestedResource("aws:iam/rolePolicyAttachment:RolePolicyAttachment", "policy", attached)
        )
    assert role.outputs["arn"] == f"arn:{partition}:iam::{ACCOUNT}:role/node"
