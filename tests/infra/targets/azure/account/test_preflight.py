"""The preflight of an Azure subscription reports what it lacks before `up`, with a fake of Azure's CLI."""

from itertools import pairwise
from typing import Any

import pytest

from infra.clients.azure import NotAskedError, by_command_line
from infra.errors import Problem
from infra.stackfile import Stack, load
from infra.targets.azure.account import preflight
from infra.targets.azure.account.preflight import problems
from infra.targets.azure.stackfile.target import AzureSpec
from tests.infra.plan import stack_file
from tests.infra.targets.azure.stacks import with_provider

FAMILIES = {"Standard_ND96isr_H100_v5": "standardNDSH100v5Family", "Standard_D8s_v5": "standardDSv5Family"}


class FakeSubscription:
    """A fake subscription that lacks nothing; tests remove parts of it."""

    def __init__(self) -> None:
        self.tenant = "00000000-0000-0000-0000-000000000001"
        self.features = {"AKSInfinibandSupport": "Registered", "EncryptionAtHost": "Registered"}
        self.zones = ["1", "2", "3"]
        self.restrictions: list[dict[str, str]] = []
        self.machines = dict(FAMILIES)
        self.limits = {"standardNDSH100v5Family": 192, "standardDSv5Family": 24, "lowPriorityCores": 384}
        self.clusters: list[str] = []
        self.providers = {*(f"Microsoft.{name}" for name in preflight.PROVIDERS), "Microsoft.StorageCache"}
        self.asked: list[tuple[str, ...]] = []

    def __call__(self, *words: str) -> Any:
        self.asked.append(words)
        message = dict(pairwise(words))
        if words[:2] == ("aks", "list"):
            return [{"name": name} for name in self.clusters]
        if words[:2] == ("account", "show"):
            return {"tenantId": self.tenant}
        if words[:2] == ("feature", "show"):
            return {"properties": {"state": self.features[message["--name"]]}}
        if words[:2] == ("provider", "list"):
            never = [{"namespace": "Microsoft.NetApp", "registrationState": "NotRegistered"}]
            return never + [{"namespace": each, "registrationState": "Registered"} for each in self.providers]
        if words[:2] == ("vm", "list-usage"):
            return [{"name": {"value": name}, "limit": str(limit)} for name, limit in self.limits.items()]
        size = message["--size"]
        place = [{"location": message["--location"], "zones": self.zones}]
        machine = {"name": size, "family": self.machines.get(size), "locationInfo": place}
        return [{**machine, "restrictions": self.restrictions}] if size in self.machines else []


@pytest.fixture
def stack() -> Stack:
    shipped = load(stack_file("azure"))
    access = {**shipped.target.model_dump(mode="json")["access"], "public_cidrs": ["198.18.7.7/32"]}
    return with_provider(shipped, access=access)


def test_the_example_network_of_the_shipped_file_is_refused() -> None:
    (problem,) = found(load(stack_file("azure")), FakeSubscription())
    assert problem.path == "target.access.public_cidrs[0]"


def test_a_private_endpoint_in_a_new_network_is_refused_since_no_host_reaches_it(stack: Stack) -> None:
    assert isinstance(stack.target, AzureSpec)
    private = with_provider(stack, access=stack.target.access.model_copy(update={"public_cidrs": ()}))
    subscription = FakeSubscription()
    (problem,) = found(private, subscription)
    assert problem.path == "target.access.public_cidrs" and "network.existing" in problem.allowed
    subscription.clusters = [private.name]
    assert found(private, subscription) == []


def found(stack: Stack, subscription: FakeSubscription) -> list[Problem]:
    spec = stack.target
    assert isinstance(spec, AzureSpec)
    return list(problems(stack, spec, subscription))


def test_a_service_that_was_never_used_is_named_with_the_command(stack: Stack) -> None:
    subscription = FakeSubscription()
    subscription.providers -= {"Microsoft.StorageCache", "Microsoft.ContainerService"}
    problems = {problem.path: problem.fix for problem in found(stack, subscription)}
    assert problems == {
        f"resource provider Microsoft.{name}": f"az provider register --namespace Microsoft.{name} --wait"
        for name in ("ContainerService", "StorageCache")
    }


def test_a_subscription_that_lacks_nothing_has_no_problem(stack: Stack) -> None:
    assert found(stack, FakeSubscription()) == []


def test_the_infiniband_feature_is_checked_before_machines_and_quotas(stack: Stack) -> None:
    subscription = FakeSubscription()
    subscription.features["AKSInfinibandSupport"] = "NotRegistered"
    (problem,) = found(stack, subscription)
    assert problem.path == "feature Microsoft.ContainerService/AKSInfinibandSupport"
    assert "az feature register" in problem.fix
    assert [words[:2] for words in subscription.asked].index(("feature", "show")) == 1


@pytest.mark.parametrize(
    ("change", "path", "got"),
    [
        ({"tenant": "00000000-0000-0000-0000-00000000000f"}, "target.tenant", None),
        ({"zones": ["2", "3"]}, "pools[1].zones", "1"),
        ({"machines": {"Standard_D8s_v5": "standardDSv5Family"}}, "pools[1].machine", None),
    ],
)
def test_a_missing_part_is_reported(change: dict[str, Any], path: str, got: str | None, stack: Stack) -> None:
    subscription = FakeSubscription()
    vars(subscription).update(change)
    problems = {problem.path: problem for problem in found(stack, subscription)}
    assert path in problems
    assert got is None or problems[path].got == got


def test_quotas_are_by_family_and_spot_has_a_separate_one(stack: Stack) -> None:
    subscription = FakeSubscription()
    subscription.limits = {"standardDSv5Family": 24, "lowPriorityCores": 96}
    short = {problem.path: (problem.got, problem.allowed) for problem in found(stack, subscription)}
    assert short == {
        "quota standardNDSH100v5Family": ("0 cores", "192 or more"),
        "quota lowPriorityCores": ("96 cores", "384 or more"),
    }


def test_a_machine_that_is_restricted_for_the_subscription_is_reported(stack: Stack) -> None:
    subscription = FakeSubscription()
    subscription.restrictions = [{"type": "Location", "reasonCode": "NotAvailableForSubscription"}]
    assert "NotAvailableForSubscription" in found(stack, subscription)[0].got


def test_without_the_command_line_the_preflight_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(NotAskedError, match="Azure CLI"):
        by_command_line("account", "show")
