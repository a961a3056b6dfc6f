"""Finding what was made in an account and not written down, since the engine was killed before the answer.

AWS has no call that makes a VPC at most once. What was made is known again by its name, by what it belongs
to, or by the tags `Name` and `trainyard.dev/stack`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jmespath
from botocore.exceptions import ClientError

from rehearsal.aws.lives import GONE, filled, is_described, kind, life
from rehearsal.aws.requests import requests

Client = Callable[[str], Any]
"""Service → a boto3 client, whoever is at its other end."""


class Finder:
    """Looks into one account and region for the resources of one stack."""

    def __init__(self, stack: str, region: str, account: str, client: Client) -> None:
        self._told = {"stack": stack, "region": region, "account": account}
        self._client = client

    def find(self, token: str, name: str, inputs: Mapping[str, Any]) -> str | None:
        """Return the engine's ID of a resource that exists; None for none, and for types of other clouds.

        Raises ClientError for what AWS refuses to tell.
        """
        if not is_described(token):
            return None
        if kind(token) == "Key":
            return self._find_key(str(inputs.get("description")))
        written = life(token)
        context = {**inputs, **self._told, "logical": name}
        if "find" in written:
            found = self._ask(token, name, inputs, written["find"], context)
            return None if found is None else str(found)
        identity = written.get("id")
        if identity is None:  # made again, it is the same: a VPC's default group
            return None
        there = self._ask(token, name, inputs, written["read"], {**context, "id": "", "self": ""})
        return None if there is None else str(filled(identity, context))

    def _ask(
        self,
        token: str,
        name: str,
        inputs: Mapping[str, Any],
        written: Mapping[str, Any],
        context: Mapping[str, Any],
    ) -> Any:
        """Make a call of `lives.yaml`, and return what it is asked for."""
        ((operation, parameters),) = ((key, value) for key, value in written.items() if key != "at")
        client = self._client(requests(token, name, inputs)[0].service)
        try:
            answer = getattr(client, operation)(**filled(parameters, context))
        except NotImplementedError:  # moto's word; AWS has them all
            return None
        except ClientError as error:
            if GONE.search(str(error)):
                return None
            raise
        found = jmespath.search(filled(written["at"], context), answer)
        return None if found in (None, [], {}) else found

    def _find_key(self, description: str) -> str | None:
        """Keys have no names before their alias: ours are known by their description."""
        kms = self._client("kms")
        for page in kms.get_paginator("list_keys").paginate():
            for key in page["Keys"]:
                told = kms.describe_key(KeyId=key["KeyId"])["KeyMetadata"]
                if told.get("Description") == description and told["KeyState"] == "Enabled":
                    return str(key["KeyId"])
        return None
