"""Machine types that the stack file itself declares, for those that the catalogue lacks."""

from datetime import date
from typing import Any

import pytest

from infra.errors import InputError
from infra.stackfile import Stack, parse
from infra.targets.aws.stackfile import groups as aws
from infra.targets.aws.stackfile.nics import network_interfaces
from infra.targets.gcp.stackfile import groups as gcp
from tests.infra.stackfile.wrong import good
from trainyard.cost.price import price_report

B300 = {"accelerator": {"model": "b300", "count": 8}, "memory": "4096Gi"}
P7 = {**B300, "vcpus": 224, "fabric": "efav4", "efa": {"network_cards": 8, "interfaces": 8}}
A5 = {**B300, "vcpus": 256, "fabric": "roce", "accelerator_type": "nvidia-b300"}
RACK = {
    "vcpus": 144,
    "memory": "960Gi",
    "accelerator": {"model": "gb300", "count": 4},
    "fabric": "ib-coreweave-nvl72",
    "architecture": "arm64",
}
INFINIBAND = {**B300, "vcpus": 96, "fabric": "ib-ndr"}

SYSTEM = {
    "aws": "m7i.xlarge",
    "gcp": "e2-standard-4",
    "azure": "Standard_D4s_v5",
    "coreweave": "cd-gp-i64-erapids",
}


def stack_data(cloud: str, machine: str, facts: dict[str, Any] | None, num_nodes: int = 2) -> dict[str, Any]:
    """Return a stack with one pool of a machine type that only the stack declares."""
    data = good(cloud)
    provider = data["target"]
    if facts is not None:
        provider["machines"] = {machine: facts}
    pool: dict[str, Any] = {"name": "work", "capacity": "on-demand", "nodes": num_nodes, "machine": machine}
    if "zones" in provider:
        pool["zones"] = provider["zones"][:1]
    data["pools"] = [{**data["pools"][0], "machine": SYSTEM[cloud]}, pool]
    data["queues"] = [{"name": "gpu", "flavors": [{"pool": "work", "quota": 8}]}]
    return data


@pytest.mark.parametrize(
    ("cloud", "machine", "facts"),
    [
        ("aws", "p7.48xlarge", P7),
        ("gcp", "a5-highgpu-8g", A5),
        ("azure", "Standard_ND96isr_B300_v7", INFINIBAND),
        ("coreweave", "gb300-8x", RACK),
    ],
)
def test_a_machine_with_its_properties_is_accepted(cloud: str, machine: str, facts: dict[str, Any]) -> None:
    num_nodes = 18 if facts is RACK else 2
    stack = parse(stack_data(cloud, machine, facts, num_nodes))
    pool = stack.pool("work")
    assert pool.accelerator
    assert {"model": pool.accelerator.model, "count": pool.accelerator.count} == facts["accelerator"]
    assert (pool.fabric, pool.architecture) == (facts["fabric"], facts.get("architecture", "amd64"))
    found = pool.known_machine(cloud)
    assert (found.name, found.cloud, found.vcpus) == (machine, cloud, facts["vcpus"])


def test_without_its_properties_it_is_refused_with_how_to_declare_it() -> None:
    with pytest.raises(InputError) as caught:
        parse(stack_data("gcp", "a5-highgpu-8g", None))
    (problem,) = [each for each in caught.value.problems if each.path == "pools[1].machine"]
    assert "`target.machines: {a5-highgpu-8g: {vcpus: …, memory: …}}`" in problem.fix


def test_groups_and_interfaces_are_those_of_the_declaration() -> None:
    stack = parse(stack_data("aws", "p7.48xlarge", P7))
    (group,) = aws.groups(stack.pool("work"), ())
    kinds = [each.kind for each in network_interfaces(group.machine)]
    assert kinds == ["ena", *["efa-only"] * 8]
    stack = parse(stack_data("gcp", "a5-highgpu-8g", A5))
    (node_pool,) = gcp.groups(stack.pool("work"), ())
    assert node_pool.machine.accelerator_type == "nvidia-b300"


def test_its_price_is_unknown() -> None:
    stack = parse(stack_data("aws", "p7.48xlarge", P7))
    (cost,) = [each for each in price_report(stack, date(2026, 11, 23)).pools if each.name == "work"]
    assert cost.usd_per_hour is None


def test_a_declaration_does_not_apply_to_the_next_stack_that_is_read() -> None:
    parse(stack_data("aws", "p7.48xlarge", P7))
    with pytest.raises(InputError):
        parse(stack_data("aws", "p7.48xlarge", None))


def without(facts: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in facts.items() if key not in keys}


@pytest.mark.parametrize(
    ("cloud", "facts", "path", "allowed"),
    [
        ("aws", without(P7, "vcpus"), "vcpus", "the key 'vcpus'"),
        ("aws", {**P7, "accelerator": {"model": "b900", "count": 8}}, "accelerator.model", "'b300'"),
        ("aws", without(P7, "efa"), "", "8 interfaces"),
        ("aws", {**P7, "efa": {"network_cards": 4, "interfaces": 8}}, "efa", "EC2 supports"),
        ("aws", {**P7, "fabric": "roce"}, "fabric", "a fabric class of aws"),
        ("aws", {**without(P7, "accelerator"), "fabric": "efav4"}, "fabric", "without accelerators"),
        ("gcp", without(A5, "accelerator_type"), "accelerator_type", "GKE's name"),
        ("azure", {**INFINIBAND, "fabric": "ib-ndr-rocm"}, "fabric", "nvidia.com/gpu"),
    ],
)
def test_inconsistent_properties_are_refused_at_their_keys(
    cloud: str, facts: dict[str, Any], path: str, allowed: str
) -> None:
    with pytest.raises(InputError) as caught:
        parse(stack_data(cloud, "new", facts))
    found = {each.path: each for each in caught.value.problems}
    problem = found[f"target.machines.new.{path}".rstrip(".")]
    assert allowed in problem.allowed
    assert "pools[1].machine" not in found, "one mistake is one problem"


def test_the_stack_is_the_same_when_it_is_dumped_and_read_again() -> None:
    stack = parse(stack_data("aws", "p7.48xlarge", P7))
    again = parse(stack.model_dump(mode="json", by_alias=True, exclude_none=True))
    assert isinstance(again, Stack)
    assert again.pool("work").known_machine("aws") == stack.pool("work").known_machine("aws")
