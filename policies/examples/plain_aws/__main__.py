"""A data bucket and a machine on AWS, as somebody wrote them who never heard of this project.

Resources are declared by their type tokens, so that the example runs without the large SDK; the engine, and
so the policies, see the same as with `aws.s3.Bucket` and `aws.ec2.Instance`. With
`pulumi preview --policy-pack ../..` it is refused for six reasons; a flag makes each right:
`pulumi config set compliant true`.
"""

from __future__ import annotations

import pulumi

compliant = pulumi.Config().get_bool("compliant") or False
tags = {"owner": "data", "cost-center": "4711"}

pulumi.CustomResource(
    "aws:s3/bucket:Bucket",
    "training-data",
    {
        "acl": "private" if compliant else "public-read",
        "forceDestroy": not compliant,
        "region": "eu-central-1" if compliant else "us-east-1",
        "tags": tags if compliant else {"owner": "data"},
    },
)
pulumi.CustomResource(
    "aws:ec2/instance:Instance",
    "workbench",
    {
        "instanceType": "g6.xlarge",
        "metadataOptions": {"httpTokens": "required" if compliant else "optional"},
        "rootBlockDevice": {"encrypted": True, **({"kmsKeyId": "alias/data"} if compliant else {})},
        "tags": tags,
    },
)
