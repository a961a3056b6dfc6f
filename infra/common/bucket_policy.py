"""Renders the policy of an S3 bucket: each team may use its folder only, administrators the whole bucket."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from infra.common import names

_OBJECTS = (
    "s3:AbortMultipartUpload",
    "s3:DeleteObject",
    "s3:GetObject",
    "s3:GetObjectTagging",
    "s3:ListMultipartUploadParts",
    "s3:PutObject",
    "s3:PutObjectTagging",
)
"""Actions of a trainer on objects, as on AWS (infra/targets/aws/cluster/identity.py)."""


def bucket_policy(bucket: str, teams: Mapping[str, str], administrators: Sequence[str] = ()) -> str:
    """Return the policy as JSON; `teams` is team to principal. `administrators` may do everything."""
    arn = f"arn:aws:s3:::{bucket}"
    statements = [statement for team, who in teams.items() for statement in _of_team(arn, team, who)]
    if administrators:
        statements.append({**_allow(administrators), "Action": ["s3:*"], "Resource": [arn, f"{arn}/*"]})
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


def _of_team(arn: str, team: str, principal: str) -> list[dict[str, Any]]:
    folder, allowed = names.team_folder(team), _allow([principal])
    # A prefix without the slash would list the folders of teams whose names begin with this one's.
    below = {"StringLike": {"s3:prefix": [f"{folder}/*"]}}
    return [
        {**allowed, "Action": list(_OBJECTS), "Resource": [f"{arn}/{folder}/*"]},
        {**allowed, "Action": ["s3:ListBucket"], "Resource": [arn], "Condition": below},
    ]


def _allow(principals: Sequence[str]) -> dict[str, Any]:
    return {"Effect": "Allow", "Principal": {"AWS": list(principals)}}
