"""What a pool offers to jobs, as JSON in an annotation of its Kueue flavor: accelerators, CPUs, memory,
fabric, capacity type, location and machine type.
"""

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from infra.stackfile.share import Share, share_of_pool

if TYPE_CHECKING:
    from infra.stackfile.stack import Stack


@dataclass(frozen=True)
class PoolOffer:
    """Properties of a pool that matter to jobs."""

    accelerator: str
    """Model of the accelerators."""
    accelerators_per_node: int
    fabric: str
    capacity: str
    cpus: float
    """Number of CPUs per accelerator."""
    memory_gib: float
    """Host memory per accelerator in GiB."""
    cloud: str
    region: str
    machine: str = ""
    """Machine type; empty for pools whose machines are not bought."""

    @property
    def share(self) -> Share:
        """CPUs and memory per accelerator."""
        return Share(self.cpus, self.memory_gib)

    def as_text(self) -> str:
        """Return it as one line of JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def read(cls, text: str) -> "PoolOffer":
        """Parse an offer; keys of newer versions are ignored.

        Raises:
            ValueError: the text is no offer.
        """
        try:
            found = json.loads(text)
            return cls(**{key: found[key] for key in cls.__dataclass_fields__ if key in found})
        except (AttributeError, TypeError) as error:
            raise ValueError(str(error)) from error


def offer_of(stack: "Stack", pool_name: str) -> PoolOffer:
    """Return the offer of a pool with accelerators."""
    pool = stack.pool(pool_name)
    assert pool.accelerator is not None, "pools of jobs have accelerators"
    share = share_of_pool(pool)
    return PoolOffer(
        accelerator=pool.accelerator.model,
        accelerators_per_node=pool.accelerator.count,
        fabric=pool.fabric,
        capacity=pool.capacity,
        cpus=share.cpus,
        memory_gib=share.memory_gib,
        cloud=stack.target.kind,
        region=stack.target.price_region,
        machine=pool.machine or "",
    )
