"""Finds AWS resources of a stack that the engine's state lacks, because the engine was killed or its state
was lost.

AWS has no call that creates a VPC at most once. A resource is therefore identified by its name, its parent,
or the tags `Name` and `trainyard.dev/stack`; a KMS key is identified by its description.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import jmespath
from botocore.exceptions import ClientError

from infra.errors import Problem, TrainyardError
from infra.targets.finder import has_unknown, lookups

Client = Callable[[str], Any]
"""Function from a service's name to a boto3 client, real or fake."""
KEY, BUCKET = "aws:kms/key:Key", "aws:s3/bucket:Bucket"
NOT_FOUND = re.compile(r"NotFound|NoSuch|NonExist|\b404\b")
"""Texts in AWS's error codes or messages for a resource that does not exist."""
_PLACEHOLDER = re.compile(r"\{([\w.]+)\}")


class AwsFinder:
    """Looks into one account and region for the resources of one stack."""

    def __init__(self, stack: str, region: str, account: str, client: Client) -> None:
        self._scope = {"stack": stack, "region": region, "account": account}
        self._client = cache(client)

    def find_begun(self, token: str, name: str, inputs: Mapping[str, Any]) -> str | None:
        """Return the engine's ID of a resource that exists; None for none, and for types of other clouds.

        Of inputs that are not known yet, none may identify it; it is not looked for then.
        Raises ClientError for what AWS refuses.
        """
        if token == KEY:
            return self._find_key(str(inputs.get("description")))
        lookup = lookups(__package__).get(token)
        if lookup is None:  # creating it again has no effect: a VPC's default security group
            return None
        context = {**inputs, **self._scope, "logical": name}
        found = self._ask(lookup.get("find") or lookup["read"], context)
        if found is None:
            return None
        return str(found if "find" in lookup else filled(lookup["id"], context))

    def find_announced(
        self, token: str, name: str, inputs: Mapping[str, Any]
    ) -> tuple[str, dict[str, str]] | None:
        """Find a resource that a preview would create: its ID, and its name if the provider generated it.

        A bucket is adopted only with the stack's tag: its name does not prove that it is the stack's.
        Raises ClientError if AWS refuses a call, TrainyardError if several resources match.
        """
        named = self._name(token, name, inputs)
        identity = self.find_begun(token, name, {**inputs, **named})
        if identity and token == BUCKET and not self._is_ours(identity):
            return None
        return (identity, named) if identity else None

    def _is_ours(self, bucket: str) -> bool:
        try:
            tags = self._client("s3").get_bucket_tagging(Bucket=bucket)["TagSet"]
        except ClientError as error:
            if error.response["Error"]["Code"] != "NoSuchTagSet":
                raise
            return False
        return {"Key": "trainyard.dev/stack", "Value": self._scope["stack"]} in tags

    def _name(self, token: str, name: str, inputs: Mapping[str, Any]) -> dict[str, str]:
        """Return the name that the provider made up for a resource that exists, as a property."""
        lookup = lookups(__package__).get(token, {})
        field = lookup.get("name", "")
        made_up = re.compile(rf"{re.escape(name)}-[0-9a-f]{{7}}")
        if not made_up.fullmatch(str(inputs.get(field, ""))):
            return {}
        names = self._ask(lookup["names"], {**inputs, **self._scope, "logical": name}) or ()
        found = sorted(each for each in names if made_up.fullmatch(each))
        if len(found) > 1:
            fix = "remove the unused ones: Trainyard cannot know which one the stack means"
            raise TrainyardError([Problem(f"{token} {name}", ", ".join(found), "one of that name", fix)])
        return {field: found[0]} if found else {}

    def _ask(self, call: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
        """Make a call of `lookups.yaml`, and return the value at `at` of its answer; None if absent."""
        ((name, template),) = ((key, value) for key, value in call.items() if key != "at")
        parameters, at = filled(template, context), filled(call["at"], context)
        if has_unknown([parameters, at]):
            return None
        service, operation = name.split(".")
        client = self._client(service)
        try:
            if client.can_paginate(operation):
                answer = client.get_paginator(operation).paginate(**parameters).build_full_result()
            else:
                answer = getattr(client, operation)(**parameters)
        except ClientError as error:
            if NOT_FOUND.search(str(error)):
                return None
            raise
        found = jmespath.search(at, answer)
        return None if found in (None, [], {}) else found

    def _find_key(self, description: str) -> str | None:
        """Find a key of ours by its description: before its alias exists, a key has no name."""
        kms = self._client("kms")
        for page in kms.get_paginator("list_keys").paginate():
            for key in page["Keys"]:
                metadata = kms.describe_key(KeyId=key["KeyId"])["KeyMetadata"]
                if metadata.get("Description") == description and metadata["KeyState"] == "Enabled":
                    return str(key["KeyId"])
        return None


def filled(template: Any, context: Mapping[str, Any]) -> Any:
    """Fill a template in; one that is a single placeholder keeps the value's type."""
    if isinstance(template, Mapping):
        return {key: filled(each, context) for key, each in template.items()}
    if isinstance(template, list):
        return [filled(each, context) for each in template]
    if not isinstance(template, str):
        return template
    whole = _PLACEHOLDER.fullmatch(template)
    if whole:
        return _at(context, whole[1])
    return _PLACEHOLDER.sub(lambda found: str(_at(context, found[1])), template)


def _at(properties: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path; None where there is none."""
    value: Any = properties
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
