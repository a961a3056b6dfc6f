"""Policy: the machine types of a node pool have the same fabric."""

from collections.abc import Iterator

from catalog.fabric_lint import machine_fabric
from policies.policy import Policy, Resource, Violation
from policies.rules import independent
from policies.unknowns import PropertyBlock


def evaluate(resource: Resource) -> Iterator[Violation]:
    """The machine types of a pool have one fabric class."""
    props = resource.props
    if resource.type.startswith("kubernetes:"):
        for requirement in props.block("spec.template.spec").blocks("requirements"):
            if (
                requirement.get("key") == "node.kubernetes.io/instance-type"
                and requirement.get("operator") == "In"
            ):
                yield from _alike(requirement, "values", requirement.texts("values"))
    elif resource.type.endswith(":Group"):
        path = "mixedInstancesPolicy.launchTemplate.overrides"
        yield from _alike(props, path, [override.get("instanceType", "") for override in props.blocks(path)])
    else:
        yield from _alike(props, "instanceTypes", props.texts("instanceTypes"))


@independent
def _alike(block: PropertyBlock, path: str, machines: list[str]) -> Iterator[Violation]:
    if len(machines) < 2:
        return
    classes = {machine: machine_fabric(machine) or "tcp" for machine in machines}
    if len(set(classes.values())) > 1:
        got = ", ".join(f"{machine} ({fabric})" for machine, fabric in classes.items())
        yield Violation(block.at(path), got, "machine types of one fabric class")


POLICY = Policy(
    name="fabric-unmixed-pools",
    title="Pools do not mix fabrics",
    reason="Ranks on machines with and without the fabric, or with two kinds of it, communicate over TCP.",
    remedy="Make a pool per fabric class, each with its queue.",
    types=(
        "aws:eks/nodeGroup:NodeGroup",
        "aws:autoscaling/group:Group",
        "kubernetes:karpenter.sh/*:NodePool",
    ),
    evaluate=evaluate,
    frameworks=("AWS EFA user guide: instance types",),
)
