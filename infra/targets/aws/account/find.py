"""Finding what was made in an account and is not written down: the engine was killed, or its state is lost.

AWS has no call that makes a VPC at most once. What was made is known again by its name, by what it belongs
to, or by the tags `Name` and `trainyard.dev/stack`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import jmespath
from botocore.exceptions import ClientError

from infra.errors import Problem, TrainyardError
from rehearsal.aws.lives import GONE, filled, is_described, kind, life, service
from rehearsal.wire import has_unknown

Client = Callable[[str], Any]
"""Service → a boto3 client, whoever is at its other end."""


class Finder:
    """Looks into one account and region for the resources of one stack."""

    def __init__(self, stack: str, region: str, account: str, client: Client) -> None:
        self._told = {"stack": stack, "region": region, "account": account}
        self._client = client

    def find(self, token: str, name: str, inputs: Mapping[str, Any]) -> str | None:
        """Return the engine's ID of a resource that exists; None for none, and for types of other clouds.

        Of inputs that are not known yet, none may tell it from others: it is not looked for then.
        Raises ClientError for what AWS refuses to tell.
        """
        if not is_described(token):
            return None
        if kind(token) == "Key":
            return self._find_key(str(inputs.get("description")))
        written = life(token)
        context = {**inputs, **self._told, "logical": name}
        if "find" in written:
            found = self._ask(token, written["find"], context)
            return None if found is None else str(found)
        identity = written.get("id")
        if identity is None:  # made again, it is the same: a VPC's default group
            return None
        there = self._ask(token, written["read"], {**context, "id": "", "self": ""})
        return None if there is None else str(filled(identity, context))

    def announced(
        self, token: str, name: str, inputs: Mapping[str, Any]
    ) -> tuple[str, dict[str, str]] | None:
        """Find a resource that a preview announces: its ID, and its name where the provider had made that up.

        A bucket is taken where it has the stack's tag: its name alone does not make it the stack's.
        Raises ClientError for what AWS refuses to tell, TrainyardError where several could be meant.
        """
        named = self._name(token, name, inputs)
        identity = self.find(token, name, {**inputs, **named})
        if identity and kind(token) == "Bucket" and not self._is_ours(identity):
            return None
        return (identity, named) if identity else None

    def _is_ours(self, bucket: str) -> bool:
        try:
            tags = self._client("s3").get_bucket_tagging(Bucket=bucket)["TagSet"]
        except ClientError as error:
            if error.response["Error"]["Code"] != "NoSuchTagSet":
                raise
            return False
        return {"Key": "trainyard.dev/stack", "Value": self._told["stack"]} in tags

    def _name(self, token: str, name: str, inputs: Mapping[str, Any]) -> dict[str, str]:
        """Return the name that the provider made up for a resource that exists, as a property."""
        written = life(token) if is_described(token) else {}
        field = written.get("autoname", "")
        made_up = re.compile(rf"{re.escape(name)}-[0-9a-f]{{7}}")
        if "named" not in written or not made_up.fullmatch(str(inputs.get(field, ""))):
            return {}
        names = self._ask(token, written["named"], {**inputs, **self._told, "logical": name}) or ()
        found = sorted(each for each in names if made_up.fullmatch(each))
        if len(found) > 1:
            fix = "remove those that are not in use: which one is meant, only you know"
            raise TrainyardError([Problem(f"{token} {name}", ", ".join(found), "one of that name", fix)])
        return {field: found[0]} if found else {}

    def _ask(self, token: str, call: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
        """Make a call of `lives.yaml`, and return what it is asked for."""
        ((operation, template),) = ((key, value) for key, value in call.items() if key != "at")
        parameters, at = filled(template, context), filled(call["at"], context)
        if has_unknown([parameters, at]):
            return None
        client = self._client(service(token))
        try:
            if client.can_paginate(operation):
                answer = client.get_paginator(operation).paginate(**parameters).build_full_result()
            else:
                answer = getattr(client, operation)(**parameters)
        except (NotImplementedError, KeyError):  # moto's words for what it lacks; AWS has them all
            return None
        except ClientError as error:
            if GONE.search(str(error)):
                return None
            raise
        found = jmespath.search(at, answer)
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
