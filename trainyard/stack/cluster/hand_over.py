"""Hands over an operator that the stack has installed and now calls `existing`, or a team's namespace that it
has made and now names: it leaves the engine's state,
and stays in the cluster as it is.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from infra.stackfile import Stack
from trainyard.stack.cluster.operators import OPERATOR_APIS, OperatorApi, mode_of

_LAYER = "trainyard:platform:"


def handed_over(stack: Stack, resources: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    """Yield the key of each operator that is `existing` and still in the state, with the URNs to drop."""
    for each in OPERATOR_APIS:
        if mode_of(stack, each.key) == "existing" and (urns := _parts(each, resources)):
            yield each.key, urns
    for index, team in enumerate(stack.teams):
        is_there = [each for each in resources if each["type"].endswith(":Namespace")]
        if team.namespace and (
            urns := [each["urn"] for each in is_there if each.get("id") == team.namespace]
        ):
            yield f"teams[{index}].namespace", urns


def _parts(operator: OperatorApi, resources: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the operator's component, its objects, its namespace and its definitions."""
    layers = {each["urn"] for each in resources if each["type"] == _LAYER + operator.layer}
    if not layers:
        return []
    return [each["urn"] for each in resources if each["urn"] in layers or _is_part(each, operator, layers)]


def _is_part(resource: Mapping[str, Any], operator: OperatorApi, layers: set[str]) -> bool:
    if resource.get("parent") in layers:
        return True
    if resource["type"].endswith(":CustomResourceDefinitions"):
        return operator.definition in (resource.get("inputs") or {}).get("definitions", ())
    is_namespace = resource["type"] == "kubernetes:core/v1:Namespace"
    return is_namespace and resource.get("id") == operator.namespace
