"""Derives the object store's account of each team, with its secret key, from the store's root key.

Only the root key has to be stored. A higher generation of a team (`key_generations`) rotates its key.
"""

import base64
import hashlib
import hmac
import json
from typing import Any

from infra.common import names
from infra.stackfile import Stack

_SECRET_KEY_LENGTH = 40
"""Length of AWS secret keys, which S3 clients expect."""


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
    """A `user` cannot create buckets, and has only the rights that a bucket's policy grants."""
    known = {"access": access_key(team), "secret": secret_key(stack, team, root), "role": "user"}
    return {**known, "userID": 0, "groupID": 0, "projectID": 0}
