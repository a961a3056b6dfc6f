"""The policy on EFA: a launch template must have the interfaces of its node groups' machine types."""

from collections.abc import Mapping
from typing import Any

import pytest

from policies.evaluation import PolicyEvaluator
from policies.fabric.efa_node_groups import POLICY
from policies.policy import Resource
from policies.related_resources import RelatedResource, RelatedResources
from policies.unknowns import UNKNOWN, PropertyBlock

TEMPLATE = "urn:pulumi:s::p::aws:ec2/launchTemplate:LaunchTemplate::nodes"
ONE = [{"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "efa"}]


def refusals(template: Mapping[str, Any], *groups: Mapping[str, Any], **parameters: Any) -> list[str]:
    """Return the policy's violations for a template with one EFA interface, and the given groups."""
    props = PropertyBlock({"networkInterfaces": ONE, **template})
    members = [
        RelatedResource(Resource("aws:ec2/launchTemplate:LaunchTemplate", "nodes", TEMPLATE, props=props))
    ]
    for index, group in enumerate(groups):
        kind = "aws:eks/nodeGroup:NodeGroup"
        resource = Resource(
            kind, f"group-{index}", f"urn:pulumi:s::p::{kind}::{index}", props=PropertyBlock(group)
        )
        depends_on = {"launchTemplate": (TEMPLATE,)} if group["launchTemplate"]["id"] is UNKNOWN else {}
        members.append(RelatedResource(resource, depends_on=depends_on))
    evaluator = PolicyEvaluator((POLICY,), parameters={POLICY.name: parameters})
    return [str(finding.violation) for finding in evaluator.evaluate_stack(RelatedResources(members))]


def group(*machines: str, template: object = UNKNOWN) -> dict[str, Any]:
    return {"instanceTypes": list(machines), "launchTemplate": {"id": template, "version": "1"}}


@pytest.mark.parametrize(
    ("template", "wanted"),
    [({}, UNKNOWN), ({"id": "lt-1"}, "lt-1")],
    ids=["a template that does not exist yet", "a template that exists"],
)
def test_a_template_with_one_interface_is_refused_for_a_machine_with_sixteen(
    template: Mapping[str, Any], wanted: object
) -> None:
    (refusal,) = refusals(template, group("p5en.48xlarge", template=wanted))
    assert refusal == "networkInterfaces: got 1 EFA interface; allowed: 16 on p5en.48xlarge"


def test_every_group_and_each_of_its_machine_types_counts() -> None:
    found = refusals({}, group("p5en.48xlarge", "p5.48xlarge"), group("p4d.24xlarge"))
    assert [each.rpartition(" on ")[2] for each in found] == ["p5en.48xlarge", "p5.48xlarge", "p4d.24xlarge"]


def test_groups_of_another_template_do_not_count() -> None:
    (refusal,) = refusals({"id": "lt-1"}, group("p5en.48xlarge", template="lt-2"))
    assert refusal.startswith("instanceType: got EFA interfaces for no machine type;")


def test_an_unknown_machine_type_is_judged_at_the_end_of_the_update() -> None:
    (advice,) = refusals({}, {"instanceTypes": UNKNOWN, "launchTemplate": {"id": UNKNOWN}})
    assert advice.startswith("instanceTypes: a value not known at preview: judged at the end of the update")


def test_for_a_machine_type_that_the_catalogue_lacks_a_parameter_has_the_number() -> None:
    (refusal,) = refusals({}, group("trn9.32xlarge"))
    assert "1 EFA interface on trn9.32xlarge, whose number of EFAs is not in the catalogue" in refusal
    assert refusals({}, group("trn9.32xlarge"), interfaces={"trn9.32xlarge": 1}) == []


def test_machines_without_efa_have_templates_without_it() -> None:
    ordinary = [{"deviceIndex": 0}]
    assert refusals({"networkInterfaces": ordinary}, group("m7i.xlarge")) == []
    assert refusals({"networkInterfaces": ordinary}) == []
