"""`Target`: what commands know of a target (a `target.kind`, such as `aws`): its spec, checks, features,
cost, plugins, cluster component and account.

Commands use a target only through this class. In a target's folder, `spec` is plain Python, `cluster` needs
Pulumi, and `account` needs the cloud's SDK; `cluster` and `account` are imported on first use.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from catalog import TargetPurchases
from infra.common.target_registry import imported
from infra.stackfile.finding import Check, Finding
from infra.stackfile.node_pool import NodePoolSpec
from infra.stackfile.target import TargetKind, TargetSpec
from infra.targets.advice import next_step
from infra.targets.data_types import DataType
from infra.targets.features import Feature, undeclared
from infra.targets.pool_types import PoolChanges

if TYPE_CHECKING:
    from infra.targets.account import Account
    from infra.targets.base import Cluster


@dataclass(frozen=True, kw_only=True)
class Target:
    """A target: the value of `target.kind`, and all that commands need of it."""

    kind: TargetKind
    spec: type[TargetSpec]
    validators: Iterable[Check] = ()
    """Checks between the sections of a stack that only this target needs."""
    cost: TargetPurchases
    """Purchases of a stack, and the reason where a stack buys nothing."""
    features: frozenset[Feature]
    """Pool features that the target supports; other features are refused."""
    reasons: Mapping[Feature, str] = field(default_factory=dict)
    """Unsupported feature → next step for the user, in one sentence."""
    pool_types: Mapping[str, PoolChanges] = field(default_factory=dict)
    """Resource type of node pools → effect of its changes on nodes."""
    data: Mapping[str, DataType] = field(default_factory=dict)
    """Resource type with data → what replaces it, and what becomes of it at `down`."""
    advice: Path | None = None
    """File of next steps after the cloud's errors, matched by the error's text."""
    packages: str = "local"
    """Extra of pyproject.toml: the engine's packages, and the target's SDK if it has one."""
    plugins: Sequence[str] = ()
    """Pulumi providers that stacks need besides Kubernetes' and ours."""
    programs: Sequence[str] = ()
    """Programs of the toolchain that the kubeconfig executes."""
    artifacts: Sequence[str] = ()
    """Artifacts of the toolchain that pods mount, where nodes run on this host."""
    cluster: str
    """`module:Class` of the cluster component."""
    account: str = ""
    """`module:Class` of the cloud account; empty for a target without one."""

    def undeclared(self, pools: Sequence[NodePoolSpec]) -> Iterator[Finding]:
        """Find features that the pools request and the target lacks."""
        return undeclared(pools, self.kind, self.features, self.reasons)

    def advise(self, message: str) -> str:
        """Return the next step where its cloud refuses; empty where none is known."""
        return next_step(self.advice, message)

    def cluster_class(self) -> "type[Cluster]":
        """Import the component; ModuleNotFoundError where the target's SDK is not installed."""
        found: type[Cluster] = imported(self.cluster)
        return found

    def open_account(self) -> "Account | None":
        """Import what asks the cloud; None for a target without an account."""
        made: Account | None = imported(self.account)() if self.account else None
        return made
