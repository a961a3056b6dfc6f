"""Creates the engine's state backend on AWS: a versioned S3 bucket with object lock, and a KMS key.

A repeated call finds both by name, and resets the settings of the bucket. It also returns the IAM policy that
the engine's user needs.
"""

import json
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

from infra.errors import InputError, Problem
from infra.targets.backend import BackendSetup, StateLocation

Client = Callable[[str], Any]
"""Function from a service's name to a boto3 client of the region."""
LOCKED_DAYS = 30
"""Retention of earlier states in days; deletion before that needs BypassGovernanceRetention."""
NONCURRENT_DAYS = 365
UNFINISHED_DAYS = 7


def clients(region: str) -> Client:
    """Return clients with the user's credentials."""
    import boto3

    make: Any = boto3.client
    return lambda service: make(service, region_name=region)


def make(location: StateLocation, account: str, client: Client) -> BackendSetup:
    """Create key and bucket, or correct existing ones.

    Raises InputError for another account's credentials, and for a bucket of another owner or
    region.
    """
    caller = client("sts").get_caller_identity()
    if caller["Account"] != account:
        fix = "sign in to the stack's account"
        raise InputError([Problem("AWS account", caller["Account"], account, fix)])
    partition = caller["Arn"].split(":")[1]
    key = _key(location, account, partition, client("kms"))
    _bucket(location, account, partition, key, client("s3"))
    return BackendSetup(
        url=f"s3://{location.bucket}?region={location.region}&awssdk=v2",
        secrets_provider=f"awskms://{_alias(location)}?region={location.region}&awssdk=v2",
        rights=_rights(location, partition, key),
    )


def _alias(location: StateLocation) -> str:
    return f"alias/{location.bucket}"


def _key(location: StateLocation, account: str, partition: str, kms: Any) -> str:  # noqa: ANN401 -- boto3's
    """Return the ARN of the key, which is known by its alias."""
    try:
        return str(kms.describe_key(KeyId=_alias(location))["KeyMetadata"]["Arn"])
    except ClientError as error:
        if error.response["Error"]["Code"] != "NotFoundException":
            raise
    # Without the account as a principal, nobody could change the key again; IAM grants others its use.
    owner = {"AWS": f"arn:{partition}:iam::{account}:root"}
    statement = {"Effect": "Allow", "Principal": owner, "Action": "kms:*", "Resource": "*"}
    made = kms.create_key(
        Description=f"state of stacks in {location.bucket}",
        Policy=_document(statement),
        Tags=[{"TagKey": key, "TagValue": value} for key, value in location.tags.items()],
    )["KeyMetadata"]
    kms.enable_key_rotation(KeyId=made["KeyId"])
    kms.create_alias(AliasName=_alias(location), TargetKeyId=made["KeyId"])
    return str(made["Arn"])


def _bucket(location: StateLocation, account: str, partition: str, key: str, s3: Any) -> None:  # noqa: ANN401 -- boto3's
    name, arn = location.bucket, f"arn:{partition}:s3:::{location.bucket}"
    _make_bucket(location, account, s3)
    block = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
    s3.put_public_access_block(Bucket=name, PublicAccessBlockConfiguration=dict.fromkeys(block, True))
    owned = {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
    s3.put_bucket_ownership_controls(Bucket=name, OwnershipControls=owned)
    default = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key}
    encryption = {"Rules": [{"ApplyServerSideEncryptionByDefault": default, "BucketKeyEnabled": True}]}
    s3.put_bucket_encryption(Bucket=name, ServerSideEncryptionConfiguration=encryption)
    s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    retention = {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": LOCKED_DAYS}}
    lock = {"ObjectLockEnabled": "Enabled", "Rule": retention}
    s3.put_object_lock_configuration(Bucket=name, ObjectLockConfiguration=lock)
    s3.put_bucket_lifecycle_configuration(Bucket=name, LifecycleConfiguration=_lifecycle())
    statements = (
        _deny(arn, {"Bool": {"aws:SecureTransport": "false"}}),
        _deny(arn, {"StringNotEquals": {"aws:PrincipalAccount": account}}),
    )
    s3.put_bucket_policy(Bucket=name, Policy=_document(*statements))
    if location.tags:
        tags = [{"Key": key, "Value": value} for key, value in location.tags.items()]
        s3.put_bucket_tagging(Bucket=name, Tagging={"TagSet": tags})


def _make_bucket(location: StateLocation, account: str, s3: Any) -> None:  # noqa: ANN401 -- boto3's
    # us-east-1 is the one region that S3 refuses as a location.
    constraint = {"CreateBucketConfiguration": {"LocationConstraint": location.region}}
    elsewhere = {} if location.region == "us-east-1" else constraint
    try:
        s3.create_bucket(Bucket=location.bucket, ObjectLockEnabledForBucket=True, **elsewhere)
    except ClientError as error:
        if error.response["Error"]["Code"] == "BucketAlreadyExists":
            fix = "choose another: bucket names are globally unique"
            raise InputError(
                [Problem("bucket", f"{location.bucket} belongs to another owner", "an unused name", fix)]
            ) from error
        if error.response["Error"]["Code"] != "BucketAlreadyOwnedByYou":
            raise
    there = s3.get_bucket_location(Bucket=location.bucket, ExpectedBucketOwner=account)["LocationConstraint"]
    if (there or "us-east-1") != location.region:
        fix = "choose another name, or set the region in which it is"
        raise InputError(
            [Problem("bucket", f"{location.bucket} is in {there or 'us-east-1'}", location.region, fix)]
        )


def _lifecycle() -> dict[str, Any]:
    every = {"Filter": {"Prefix": ""}, "Status": "Enabled"}
    return {
        "Rules": [
            {"ID": "noncurrent", **every, "NoncurrentVersionExpiration": {"NoncurrentDays": NONCURRENT_DAYS}},
            {
                "ID": "unfinished",
                **every,
                "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": UNFINISHED_DAYS},
            },
        ]
    }


def _deny(arn: str, condition: dict[str, Any]) -> dict[str, Any]:
    resources = [arn, f"{arn}/*"]
    return {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": resources,
        "Condition": condition,
    }


def _rights(location: StateLocation, partition: str, key: str) -> dict[str, Any]:
    arn = f"arn:{partition}:s3:::{location.bucket}"
    allowed = (
        (["s3:ListBucket"], arn),
        (["s3:GetObject", "s3:PutObject", "s3:DeleteObject"], f"{arn}/*"),
        (["kms:Encrypt", "kms:Decrypt", "kms:GenerateDataKey"], key),
    )
    statements = [{"Effect": "Allow", "Action": actions, "Resource": where} for actions, where in allowed]
    return {"Version": "2012-10-17", "Statement": statements}


def _document(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
