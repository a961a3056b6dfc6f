"""`Target`: what commands know of a target: spec, checks, features, cost, plugins, component, account.

The command line, price, rehearsal, adoption and doctor use only this. The parts are in the target's folder:
`spec` is plain Python, `cluster` needs Pulumi, `account` the cloud's SDK; the last two are imported on use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from catalog import TargetCost
from infra.spec.finding import Check, Finding
from infra.spec.node_pool import NodePoolSpec
from infra.spec.provider import ProviderKind, ProviderSpec
from infra.targets.advice import Advice, next_step
from infra.targets.features import Feature, undeclared
from infra.targets.pool_types import PoolChanges
from infra.targets.registry import imported

if TYPE_CHECKING:
    from infra.targets.account import Account
    from infra.targets.base import Cluster


@dataclass(frozen=True, kw_only=True)
class Target:
    """One target: the value of `provider.kind`, and what belongs to it."""

    kind: ProviderKind
    spec: type[ProviderSpec]
    validators: Iterable[Check] = ()
    """What only this target would refuse: checks between the sections of a stack."""
    cost: TargetCost
    """What its stacks buy, and why a stack buys nothing where that is so."""
    features: frozenset[Feature]
    """What its pools can have; whatever is not here is refused."""
    reasons: Mapping[Feature, str] = field(default_factory=dict)
    """What to write instead of a feature that it lacks, in a sentence for the user."""
    pool_types: Mapping[str, PoolChanges] = field(default_factory=dict)
    """Type of resource that makes nodes → what its changes do to them."""
    advice: Sequence[Advice] = ()
    """The next step after a cloud's error, by the error's text."""
    packages: str = ""
    """The extra of pyproject.toml with the target's SDK; empty for a target that needs none."""
    plugins: Sequence[str] = ()
    """Pulumi providers that its stacks need besides Kubernetes' and ours."""
    programs: Sequence[str] = ()
    """Programs of the toolchain that its kubeconfig executes."""
    artifacts: Sequence[str] = ()
    """What the toolchain makes that pods of its stacks mount, where these run on nodes of this host."""
    cluster: str
    """`module:Class` of its component."""
    account: str = ""
    """`module:Class` of what asks its cloud; empty for a target that is in no cloud's account."""

    def undeclared(self, pools: Sequence[NodePoolSpec]) -> Iterator[Finding]:
        """Find what the pools ask for and the target does not have."""
        return undeclared(pools, self.kind, self.features, self.reasons)

    def advise(self, message: str) -> str:
        """Return the next step where its cloud refuses; empty where none is known."""
        return next_step(self.advice, message)

    def cluster_class(self) -> type[Cluster]:
        """Import the component; ModuleNotFoundError where the target's SDK is not installed."""
        found: type[Cluster] = imported(self.cluster)
        return found

    def open_account(self) -> Account | None:
        """Import what asks the cloud; None for a target without an account."""
        made: Account | None = imported(self.account)() if self.account else None
        return made
