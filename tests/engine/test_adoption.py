"""Adoption of existing resources into a state, in an order with which no later preview is refused."""

import json
from typing import Any

from engine.adoption import adopted, disowned
from engine.provider.values import UNKNOWN_MARKS
from engine.recovery import Found, Unfinished

EMPTY = json.dumps({"deployment": {"resources": []}})
PROVIDER = "urn:pulumi:s::p::pulumi:providers:gcp::mine"
UNKNOWN = next(iter(UNKNOWN_MARKS))


def announced(name: str, **more: Any) -> dict[str, Any]:
    kind = "gcp:filestore/instance:Instance"
    state = {"urn": f"urn:pulumi:s::p::{kind}::{name}", "type": kind, "custom": True, "inputs": {}}
    return {**state, "provider": f"{PROVIDER}::{UNKNOWN}", **more}


def names(exported: str) -> list[str]:
    return [each["urn"].rpartition("::")[2] for each in json.loads(exported)["deployment"]["resources"]]


def find(unfinished: Unfinished) -> Found | None:
    return Found(f"id-{unfinished.name}")


def test_a_protected_resource_is_adopted_after_its_dependencies_are_known() -> None:
    provider = {"urn": PROVIDER, "type": "pulumi:providers:gcp", "custom": True, "inputs": {"region": "r"}}
    plain = announced("plain", inputs={"key": UNKNOWN})
    protected = announced("protected", inputs={"key": UNKNOWN}, protect=True)
    first, found = adopted(EMPTY, [provider, plain, protected], find)
    assert [each.rpartition("::")[2] for each in found] == ["plain"]
    assert names(first) == ["mine", "plain"]
    known = {**protected, "inputs": {"key": "k"}}
    second, found = adopted(first, [known], find)
    assert found == [known["urn"]]
    assert names(second) == ["mine", "plain", "protected"]


def test_values_that_remain_unknown_do_not_prevent_the_adoption() -> None:
    provider = {"urn": PROVIDER, "type": "pulumi:providers:gcp", "custom": True, "inputs": {}}
    protected = announced("protected", inputs={"key": UNKNOWN}, protect=True)
    state, found = adopted(EMPTY, [provider, protected], find)
    assert found == [protected["urn"]]
    (_, entry) = json.loads(state)["deployment"]["resources"]
    assert entry["protect"] and entry["inputs"] == {}


def test_resources_that_are_disowned_leave_no_trace_in_the_state() -> None:
    kept = {
        "urn": "queue",
        "dependencies": ["kueue", "flavor"],
        "propertyDependencies": {"spec": ["kueue"], "name": None},
        "deletedWith": "kueue",
    }
    exported = json.dumps({"version": 3, "deployment": {"resources": [{"urn": "kueue"}, kept]}})
    assert json.loads(disowned(exported, ["kueue"])) == {
        "version": 3,
        "deployment": {
            "resources": [
                {"urn": "queue", "dependencies": ["flavor"], "propertyDependencies": {"spec": [], "name": []}}
            ]
        },
    }
