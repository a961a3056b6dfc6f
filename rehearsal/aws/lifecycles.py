"""Reads `lifecycles.yaml` (the ID and outputs of each type of AWS resource, and the requests that read,
update and delete it), and fills in the templates in it.
"""

import re
from collections.abc import Mapping
from typing import Any

from rehearsal.cloud import Properties, at
from rehearsal.tables import table

NOT_FOUND = re.compile(r"NotFound|NoSuch|NonExist|ResourceNotFound|\b404\b|InvalidPermission\.NotFound")
"""Texts in AWS's answers about a resource that does not exist."""
_SERVICES = {
    "vpc": "ec2",
    "cloudwatch/logGroup": "logs",
    "cloudwatch/logMetricFilter": "logs",
    "cloudwatch/eventRule": "events",
    "cloudwatch/eventTarget": "events",
}
"""Module of the SDK, or type in it → boto3 service, where their names differ."""
_PLACEHOLDER = re.compile(r"\{([\w.]+)\}")


def kind(token: str) -> str:
    """Return the last part of a type: `Vpc`."""
    return token.rpartition(":")[2]


def life(token: str) -> Mapping[str, Any]:
    """Return a type's entry. Raises KeyError for a type without one."""
    found: Mapping[str, Any] = table("rehearsal.aws", "lifecycles")[kind(token)]
    return found


def service(token: str) -> str:
    """Return boto3's name of the service that a type belongs to: `aws:vpc/…` → `ec2`."""
    module_path = token.split(":")[1]
    module = module_path.partition("/")[0]
    return _SERVICES.get(module_path) or _SERVICES.get(module, module)


def filled(template: Any, context: Properties) -> Any:
    """Fill a template in; one that is a single placeholder keeps the value's type."""
    if isinstance(template, Mapping):
        return {key: filled(each, context) for key, each in template.items()}
    if isinstance(template, list):
        return [filled(each, context) for each in template]
    if not isinstance(template, str):
        return template
    whole = _PLACEHOLDER.fullmatch(template)
    if whole:
        return at(context, whole[1])
    return _PLACEHOLDER.sub(lambda found: str(at(context, found[1])), template)
