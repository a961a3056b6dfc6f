"""Finds the IAM roles that a key policy names as principals but the account does not have: KMS refuses such a
policy.
"""

import json
from collections.abc import Iterator
from typing import Any

from botocore.exceptions import ClientError

_ROLE = ":role/"


def missing(policy: str, iam: Any) -> list[str]:
    """Return the roles that a policy names as principals and the account does not have.

    A new account has no service-linked roles: AWS makes each when its service is first used.
    """
    return [arn for arn in _roles(json.loads(policy)) if not _exists(arn.rpartition("/")[2], iam)]


def _roles(policy: dict[str, Any]) -> Iterator[str]:
    for statement in policy.get("Statement", ()):
        principal = statement.get("Principal", {})
        named = principal.get("AWS", []) if isinstance(principal, dict) else []
        for arn in [named] if isinstance(named, str) else named:
            if _ROLE in arn:
                yield arn


def _exists(role: str, iam: Any) -> bool:
    try:
        iam.get_role(RoleName=role)
    except ClientError:
        return False
    return True
