"""`trainyard run --dry-run`: prints where a job would run, when, and at what price."""

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, cast

import catalog
from catalog import MachinePurchase, MissingPrice
from trainyard.jobs.cluster import MemberCluster
from trainyard.jobs.placement import Flavor, PlacedJob
from trainyard.jobs.queue import estimate_new_job_start, shown


def outlook_of(cluster: MemberCluster, placed: PlacedJob) -> Iterator[str]:
    """Yield it line by line."""
    job = placed.job
    needed = job.num_nodes * job.accelerators_per_node
    size = f"{job.num_nodes} × {job.accelerators_per_node} GPUs"
    yield f"where  {size} by queue {job.queue}, runtime {job.runtime}"
    for flavor in placed.flavors:
        offer = flavor.offer
        yield (
            f"       {flavor.pool.name}: {flavor.pool.free} of {flavor.max_accelerators}"
            f" {offer.accelerator} free"
            f" ({offer.capacity}, {offer.cloud}{f' {offer.region}' if offer.region else ''})"
        )
    pools = [each.pool.name for each in placed.flavors]
    start = estimate_new_job_start(cluster, placed.flavors[0].queue, pools, needed, datetime.now(UTC))
    yield f"when   {shown(start)}: {start.basis}"
    for flavor in placed.flavors:
        yield f"price  {flavor.pool.name}: {_price(flavor, job.num_nodes, job.accelerators_per_node)}"


def _price(flavor: Flavor, num_nodes: int, per_node: int) -> str:
    """Price of the job by the catalogue, for its share of each node."""
    offer = flavor.offer
    if not offer.machine:
        return "no machine is bought for it"
    bought = MachinePurchase(
        name=flavor.pool.name,
        cloud=cast(Any, offer.cloud),
        region=offer.region,
        machine=offer.machine,
        capacity=cast(Any, offer.capacity),
        number=num_nodes,
    )
    [cost] = catalog.estimate([bought], datetime.now(UTC).date()).costs
    if isinstance(cost.price, MissingPrice) or cost.usd_per_hour is None:
        return f"not known: {cost.price.reason if isinstance(cost.price, MissingPrice) else offer.machine}"
    usd = cost.usd_per_hour * Decimal(per_node) / Decimal(offer.accelerators_per_node)
    return f"{usd:,.2f} USD per hour (price of {cost.price.source.date})"
