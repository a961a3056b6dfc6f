"""Policy: a launch template has all EFA interfaces of the machine types that its node groups use."""

from collections.abc import Iterator

from policies.fabric.efa_interfaces import INTERFACES, check_count, number_of_efas
from policies.policy import Policy, Resource, Violation

REFERENCES = (("launchTemplate.id", "id"), ("launchTemplate.name", "name"))
"""Property of a node group that refers to a launch template → property of the template."""


def evaluate(resource: Resource) -> Iterator[Violation]:
    """The machine type stands in the node group unless the template has one, as for a capacity block."""
    if resource.props.has("instanceType") or not resource.props.count("networkInterfaces"):
        return
    machines = [machine for group in _groups(resource) for machine in group.props.texts("instanceTypes")]
    if not machines and number_of_efas(resource.props):
        allowed = "an instanceType, or a node group with instanceTypes that uses the template"
        yield Violation("instanceType", "EFA interfaces for no machine type", allowed)
    for machine in dict.fromkeys(machines):
        yield from check_count(resource, machine)


def _groups(template: Resource) -> Iterator[Resource]:
    """The node groups that use a template, by its ID or its name."""
    pointing = (template.related_resources.pointing_at(template, by, name) for by, name in REFERENCES)
    yield from {group.urn: group for groups in pointing for group in groups}.values()


POLICY = Policy(
    name="fabric-efa-node-groups",
    title="Node groups get all EFA interfaces of their machines",
    reason="With one interface instead of 16 a job has a sixteenth of the bandwidth.",
    remedy="List every EFA interface of the machine type in the launch template: one ENA, then efa-only.",
    types=("aws:ec2/launchTemplate:LaunchTemplate",),
    together_with=("aws:eks/nodeGroup:NodeGroup",),
    evaluate=evaluate,
    frameworks=("AWS EFA user guide: instance types and network cards",),
    parameters={"interfaces": INTERFACES},
)
