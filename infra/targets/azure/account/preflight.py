"""Checks the Azure subscription before `up`: tenant, features, resource providers, machine sizes, quotas.

It queries Azure through the `az` command line, with the identity that is signed in there.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from infra.errors import Problem
from infra.stackfile import Stack
from infra.stackfile.node_pool import NodePoolSpec
from infra.targets.account import private_endpoint_is_unreachable, public_networks_are_real
from infra.targets.azure.stackfile.target import AzureSpec

Ask = Callable[..., Any]
"""Function from the words of an `az` command to its answer."""
INFINIBAND = ("Microsoft.ContainerService", "AKSInfinibandSupport")
ENCRYPTION = ("Microsoft.Compute", "EncryptionAtHost")
PROVIDERS = (
    *("ContainerService", "Compute", "Network", "KeyVault", "ManagedIdentity", "Storage"),
    *("OperationalInsights", "Insights", "Authorization"),
)
"""Azure resource providers that every stack needs."""
FILESYSTEMS = {"lustre": "StorageCache", "netapp": "NetApp"}
"""Kind of filesystem → resource provider that it also needs."""
SPOT_QUOTA = "lowPriorityCores"


def problems(stack: Stack, spec: AzureSpec, ask: Ask) -> Iterator[Problem]:
    """Find what the subscription lacks. Raises NotAskedError if Azure does not answer."""
    tenant = ask("account", "show", "--subscription", spec.subscription)["tenantId"]
    if tenant != spec.tenant:
        yield Problem("target.tenant", spec.tenant, tenant, "write the tenant of the subscription")
    yield from public_networks_are_real(spec.access.public_cidrs)
    yield from _control_plane_access(stack, spec, ask)
    yield from _features(stack, spec, ask)
    yield from _providers(spec, ask)
    families: dict[str, str] = {}
    for index, pool in enumerate(stack.pools):
        found = ask(
            *("vm", "list-skus", "--location", spec.region, "--size", str(pool.machine)),
            *("--all", "--subscription", spec.subscription),
        )
        offered = next((each for each in found if each["name"] == pool.machine), None)
        yield from _offered(index, pool, spec, offered)
        if offered:
            families[pool.name] = str(offered["family"])
    yield from _quotas(stack, spec, families, ask)


def _control_plane_access(stack: Stack, spec: AzureSpec, ask: Ask) -> Iterator[Problem]:
    if spec.access.public_cidrs or spec.network.existing:
        return
    if stack.name not in {each["name"] for each in ask("aks", "list", "--subscription", spec.subscription)}:
        yield private_endpoint_is_unreachable("target.access.public_cidrs", "the network of `up`'s host")


def _features(stack: Stack, spec: AzureSpec, ask: Ask) -> Iterator[Problem]:
    """AKS's InfiniBand feature keeps a pool on one fabric; host encryption is needed for any pool."""
    on_infiniband = any(pool.fabric != "tcp" for pool in stack.pools)
    for provider, name in (*([INFINIBAND] if on_infiniband else []), ENCRYPTION):
        words = ("--namespace", provider, "--name", name, "--subscription", spec.subscription)
        state = ask("feature", "show", *words)["properties"]["state"]
        if state != "Registered":
            fix = (
                f"az feature register --namespace {provider} --name {name}; when it is Registered,"
                f" az provider register --namespace {provider}"
            )
            yield Problem(f"feature {provider}/{name}", state, "Registered", fix)


def _providers(spec: AzureSpec, ask: Ask) -> Iterator[Problem]:
    """A subscription that never used a service is refused (MissingSubscriptionRegistration)."""
    listed = ask("provider", "list", "--subscription", spec.subscription)
    there = {each["namespace"].lower() for each in listed if each["registrationState"] == "Registered"}
    of_filesystem = FILESYSTEMS.get(spec.filesystem.kind)
    for name in (*PROVIDERS, *([of_filesystem] if of_filesystem else [])):
        if f"microsoft.{name}".lower() not in there:
            fix = f"az provider register --namespace Microsoft.{name} --wait"
            yield Problem(f"resource provider Microsoft.{name}", "not registered", "Registered", fix)


def _offered(index: int, pool: NodePoolSpec, spec: AzureSpec, found: Any) -> Iterator[Problem]:  # noqa: ANN401
    where = f"pools[{index}].machine"
    if found is None:
        fix = "choose another region, or another machine"
        yield Problem(where, str(pool.machine), f"a VM size that {spec.region} has", fix)
        return
    closed = [each["reasonCode"] for each in found.get("restrictions", []) if each["type"] == "Location"]
    if closed:
        fix = "ask Azure's support to open the size for the subscription in this region"
        yield Problem(where, f"{pool.machine}: {', '.join(closed)}", "no restriction", fix)
    zones = {zone for each in found.get("locationInfo", []) for zone in each.get("zones", [])}
    if lacking := sorted({*(pool.zones or spec.zones)} - zones):
        allowed = f"zones that have it: {', '.join(sorted(zones)) or 'none'}"
        fix = "name other zones for the pool"
        yield Problem(f"pools[{index}].zones", ", ".join(lacking), allowed, fix)


def _quotas(stack: Stack, spec: AzureSpec, families: dict[str, str], ask: Ask) -> Iterator[Problem]:
    """Core quotas by family, and one for all spot machines; the stack itself may use a part of them."""
    needed: Counter[str] = Counter()
    for pool in stack.pools:
        if pool.name in families:
            family = SPOT_QUOTA if pool.is_spot else families[pool.name]
            needed[family] += pool.num_nodes * pool.known_machine("azure").vcpus
    usage = ask("vm", "list-usage", "--location", spec.region, "--subscription", spec.subscription)
    limits = {each["name"]["value"].lower(): int(each["limit"]) for each in usage}
    for family, cores in needed.items():
        limit = limits.get(family.lower(), 0)
        if limit < cores:
            fix = f"ask for {cores} in {spec.region}: Quotas, Compute, in the portal"
            yield Problem(f"quota {family}", f"{limit} cores", f"{cores} or more", fix)
