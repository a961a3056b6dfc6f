"""Users and bucket policy of the object store: each team gets a user and one folder.

Their secret keys are derived from the store's own, so that no other secret has to be stored.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterable
from typing import Any

from infra import names
from infra.spec import Stack

_SECRET_KEY_LENGTH = 40
"""AWS's own, which S3 clients expect."""
_OBJECTS = (
    "s3:AbortMultipartUpload",
    "s3:DeleteObject",
    "s3:GetObject",
    "s3:GetObjectTagging",
    "s3:ListMultipartUploadParts",
    "s3:PutObject",
    "s3:PutObjectTagging",
)
"""What a trainer does with objects, as on AWS (infra/targets/aws/cluster/identity.py)."""


def access_key(team: str) -> str:
    """Return the name by which the store knows a team."""
    return names.team_namespace(team)


def secret_key(stack: Stack, team: str, root: str) -> str:
    """Return a team's secret key, of its generation, from the store's own (HMAC-SHA256)."""
    generation = stack.storage.object_store.key_generations.get(team, 1)
    message = f"trainyard object store: {team}, {generation}".encode()
    digest = hmac.new(root.encode(), message, hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")[:_SECRET_KEY_LENGTH]


def accounts(stack: Stack, root: str) -> str:
    """Return the store's users as versitygw reads them (1.8, auth/iam_internal.go: `users.json`)."""
    made = {access_key(team.name): _account(stack, team.name, root) for team in stack.teams}
    return json.dumps({"accessAccounts": made}, sort_keys=True)


def _account(stack: Stack, team: str, root: str) -> dict[str, Any]:
    """A `user` makes no buckets, and has what a bucket's policy gives it."""
    known = {"access": access_key(team), "secret": secret_key(stack, team, root), "role": "user"}
    return {**known, "userID": 0, "groupID": 0, "projectID": 0}


def bucket_policy(bucket: str, teams: Iterable[str]) -> str:
    """Return the policy that gives each team its own folder, `checkpoints/<team>/`, and nothing else."""
    statements = [statement for team in teams for statement in _statements(bucket, team)]
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


def _statements(bucket: str, team: str) -> list[dict[str, Any]]:
    arn, folder = f"arn:aws:s3:::{bucket}", names.team_folder(team)
    allowed = {"Effect": "Allow", "Principal": {"AWS": [access_key(team)]}}
    below = {"StringLike": {"s3:prefix": [folder, f"{folder}/*"]}}
    return [
        {**allowed, "Action": list(_OBJECTS), "Resource": [f"{arn}/{folder}/*"]},
        {**allowed, "Action": ["s3:ListBucket"], "Resource": [arn], "Condition": below},
    ]
