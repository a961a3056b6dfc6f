"""Example of the policy pack on a program without Trainyard: an S3 bucket and an EC2 instance that violate
six policies, or none with `compliant: true`.

Resources are declared by their type tokens, so that the example runs without the large SDK; the engine and
the policies see the same as with `aws.s3.Bucket` and `aws.ec2.Instance`. `pulumi preview --policy-pack ../..`
fails on six policies. With `pulumi config set compliant true` it passes.
"""

import json

import pulumi

compliant = pulumi.Config().get_bool("compliant") or False
tags = {"owner": "data", "cost-center": "4711"}

region = "eu-central-1" if compliant else "us-east-1"

bucket = pulumi.CustomResource(
    "aws:s3/bucket:Bucket",
    "training-data",
    {
        "bucket": "training-data",
        "acl": "private" if compliant else "public-read",
        "forceDestroy": not compliant,
        "region": region,
        "tags": tags if compliant else {"owner": "data"},
    },
)
if compliant:
    default = {"sseAlgorithm": "aws:kms", "kmsMasterKeyId": "alias/data"}
    encryption = "BucketServerSideEncryptionConfiguration"
    pulumi.CustomResource(
        f"aws:s3/bucketServerSideEncryptionConfiguration:{encryption}",
        "training-data",
        {"bucket": bucket.id, "rules": [{"applyServerSideEncryptionByDefault": default}], "region": region},
    )
    pulumi.CustomResource(
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
        "training-data",
        {
            "bucket": bucket.id,
            "blockPublicAcls": True,
            "blockPublicPolicy": True,
            "ignorePublicAcls": True,
            "restrictPublicBuckets": True,
            "region": region,
        },
    )
    tls_only = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": ["arn:aws:s3:::training-data", "arn:aws:s3:::training-data/*"],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    pulumi.CustomResource(
        "aws:s3/bucketPolicy:BucketPolicy",
        "training-data",
        {
            "bucket": bucket.id,
            "policy": json.dumps({"Version": "2012-10-17", "Statement": [tls_only]}),
            "region": region,
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
