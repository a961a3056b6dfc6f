"""`trainyard stack inspect`: shows what a cluster has, and writes the part of a stack file that follows."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from rich.console import Console

import catalog
from engine.provider.cluster_claim import claim_of
from engine.tables import PlainTable
from infra.clients.kubernetes import ApiServer, Object
from infra.stackfile.target import supported_minors
from trainyard.stack.cluster.nodes import accelerators_of, distribution_of
from trainyard.stack.cluster.operators import OPERATOR_APIS, definitions_asked, served_versions
from trainyard.stack.cluster.owners import owner_of
from trainyard.stack.cluster.seen import ClusterSeen, look

PRODUCT = "nvidia.com/gpu.product"
"""Node label of GPU Feature Discovery with the GPU's name: `NVIDIA-H100-80GB-HBM3`."""


def show_cluster(api: ApiServer, context: str, console: Console) -> None:
    """Print version, nodes, operators with their owners, and the stack file's part."""
    seen = look(api, definitions_asked())
    console.print(f"[bold]{context}[/]: {api.address}, Kubernetes {seen.version}", highlight=False)
    if claim := claim_of(api):
        text = f"stack {claim.get('owner')} has this cluster since {claim.get('since')}"
        console.print(text, highlight=False, soft_wrap=True)
    _show_nodes(seen, console)
    _show_operators(seen, console)
    part = yaml.safe_dump(proposed(seen, context), sort_keys=False, default_flow_style=None, width=100)
    console.print("\nThe part of a stack file that follows from it:\n", highlight=False)
    console.print(part.rstrip(), highlight=False, markup=False, soft_wrap=True)


def _show_nodes(seen: ClusterSeen, console: Console) -> None:
    table = PlainTable("nodes", "accelerators of each", "system")
    for (offers, system), number in sorted(Counter(map(_kind_of, seen.nodes)).items()):
        table.add_row(str(number), offers or "–", system)
    table.show(console)


def _kind_of(node: Object) -> tuple[str, str]:
    labels, status = node["metadata"].get("labels") or {}, node.get("status") or {}
    allocatable = status.get("allocatable") or {}
    offers = [
        f"{allocatable[name]} {name}" for name in catalog.accelerator_resources() if name in allocatable
    ]
    offers += [labels[PRODUCT]] if PRODUCT in labels else []
    return ", ".join(offers), (status.get("nodeInfo") or {}).get("osImage", "")


def _show_operators(seen: ClusterSeen, console: Console) -> None:
    table = PlainTable("operator", "serves", "of", "runs")
    for each in OPERATOR_APIS:
        if found := seen.definitions.get(each.definition):
            running = seen.controller(each.image_name)
            where = f"{running.image} in {running.namespace}" if running else "–"
            table.add_row(each.title, ", ".join(served_versions(found)), owner_of(found), where)
    if table.row_count:
        table.show(console)
    classes = ", ".join(f"{each['metadata']['name']}{_is_default(each)}" for each in seen.storage_classes)
    console.print(f"storage classes: {classes or 'none'}", highlight=False, soft_wrap=True)


def _is_default(storage_class: Object) -> str:
    annotations = storage_class["metadata"].get("annotations") or {}
    return " (default)" if annotations.get("storageclass.kubernetes.io/is-default-class") == "true" else ""


def proposed(seen: ClusterSeen, context: str) -> dict[str, Any]:
    """Return `target`, `pools`, `operators` and `admission` as far as they follow from the cluster."""
    there = [each for each in OPERATOR_APIS if each.definition in seen.definitions]
    modes = {each.key.partition(".")[2]: "existing" for each in there if each.key.startswith("operators.")}
    software = {each.key.partition(".")[2]: "existing" for each in there if each.key.startswith("target.")}
    version = {"kubernetes_version": seen.minor} if seen.minor in supported_minors("onprem") else {}
    accounts = sorted({f"{each.namespace}/{each.account}" for each in seen.elsewhere})
    runs = distribution_of(seen)
    runtime = {"container_runtime": runs} if runs in ("k3s", "rke2") else {}
    target = {"kind": "onprem", "cluster": {"context": context}, **version, **software, **runtime}
    return {
        "target": target,
        "pools": list(_pools(seen)),
        **({"operators": modes} if modes else {}),
        **({"admission": {"controllers": accounts}} if accounts else {}),
    }


def _pools(seen: ClusterSeen) -> Iterator[Mapping[str, Any]]:
    """Yield a pool for each kind of accelerator that the catalogue has; the rest is for the system."""
    models: Counter[tuple[str, int]] = Counter()
    for node in seen.nodes:
        number = accelerators_of(node)
        if number and (model := _model_of((node["metadata"].get("labels") or {}).get(PRODUCT, ""))):
            models[model, number] += 1
    others = len(seen.nodes) - sum(models.values())
    if others:
        yield {"name": "system", "role": "system", "nodes": others}
    for (model, number), nodes in sorted(models.items()):
        accelerator = {"model": model, "count": number}
        yield {"name": model, "capacity": "on-demand", "nodes": nodes, "accelerator": accelerator}


def _model_of(product: str) -> str:
    """Return the catalogue's model of a product: `h100` of `NVIDIA-H100-80GB-HBM3`; the longest name wins."""
    words = product.lower().replace("_", "-").split("-")
    known = sorted((each.name for each in catalog.accelerators()), key=len, reverse=True)
    return next((name for name in known if name.split("-")[0] in words), "")
