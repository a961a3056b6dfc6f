"""The table of a guide's section "Remove", from the plan: what becomes of the stack's data at `down`."""

import os
from pathlib import Path

from infra.common.target_registry import target_of
from infra.targets.data_types import DataResource, data_in
from tests.infra.plan import Plan

BEGIN, END = "<!-- data: from the plan, by UPDATE_GOLDEN=1 -->\n", "<!-- /data -->\n"
CLUSTERS = frozenset(
    {
        "aws:eks/cluster:Cluster",
        "azure-native:containerservice:ManagedCluster",
        "coreweave:index/cksCluster:CksCluster",
        "azure-native:resources:ResourceGroup",
        "gcp:container/cluster:Cluster",
        "trainyard:kubernetes:ClusterClaim",
    }
)
"""Protected types that hold no data themselves."""


def fates_of(plan: Plan, kind: str) -> list[DataResource]:
    """Return the plan's resources with data."""
    resources = [
        {
            "urn": each.urn,
            "type": each.type,
            "custom": True,
            "inputs": each.inputs,
            "retainOnDelete": each.retained,
            "protect": each.protect,
        }
        for each in plan.resources
    ]
    return list(data_in(resources, target_of(kind).data))


def assert_all_data_is_known(plan: Plan, kind: str) -> None:
    """Whatever the program protects holds data that the table knows, or is the cluster."""
    known = {*target_of(kind).data, *CLUSTERS}
    assert {each.type for each in plan.resources if each.protect} <= known


def assert_guide_tells_fates(plan: Plan, kind: str, guide: Path) -> None:
    """The guide's table is the plan's; `UPDATE_GOLDEN=1` writes it."""
    rows = {}
    for each in fates_of(plan, kind):
        what, remove, expires = each.kind.what, each.kind.remove, each.kind.expires
        if each.is_kept():
            fate = f"kept, and billed until you run `{remove}`" if remove else "kept"
        else:
            fate = f"deleted {expires}" if expires else "deleted with its data"
        rows[what, fate] = f"| {what} | {fate} | {each.kind.back} |\n"
    table = "| data | at `down` or `destroy` | back |\n|---|---|---|\n" + "".join(rows.values())
    text = guide.read_text()
    before, _, rest = text.partition(BEGIN)
    found, _, after = rest.partition(END)
    if os.environ.get("UPDATE_GOLDEN"):
        guide.write_text(before + BEGIN + table + END + after)
    else:
        assert found == table, f"{guide}: run the test with UPDATE_GOLDEN=1"
