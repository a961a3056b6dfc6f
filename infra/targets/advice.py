"""Matches a cloud's error message against known refusals, and returns what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Advice:
    """Next step for a known error message of a cloud."""

    pattern: str
    """Regular expression that finds the cloud's text; its groups can be used in `fix`."""
    fix: str
    """Next step for the user."""


RUN_AGAIN = "and run the same command again: completed work is not repeated"
"""Last sentence of a next step."""


def unreachable(key: str = "") -> Advice:
    """Return the advice on an API server that cannot be reached; `key` opens it to the user's network."""
    opened = f" (`{key}`)" if key else ""
    return Advice(
        r"cluster is unreachable.*(i/o timeout|no such host|deadline exceeded|Timeout)",
        f"run where the API server is reachable, or allow your network{opened}: docs/runners.md. Then run the"
        " same command again",
    )


EVERYWHERE = (
    unreachable(),
    Advice(
        r"NicClusterPolicy[^:]*.*(notReady|timed out)",
        "Node Feature Discovery sees no NIC on any node"
        " (`kubectl get nodes -l feature.node.kubernetes.io/pci-15b3.present=true`):"
        f" add a node that has one (`lspci -d 15b3:`), or remove the fabric of its pool, {RUN_AGAIN}",
    ),
    Advice(
        r"ClusterQueue.*resource-in-use",
        "workloads still hold quota of the queue. Stop it, which evicts them (`kubectl edit clusterqueue"
        f" QUEUE`: `stopPolicy: HoldAndDrain`), {RUN_AGAIN}",
    ),
    Advice(
        r"NamespaceContentRemaining: Some resources are remaining: (?P<left>[^;]+?)\.? has \d",
        "objects remain in the namespace: {left}. List it (`kubectl get KIND -n NAMESPACE`) and delete it,"
        f" with the pods that use it, {RUN_AGAIN}",
    ),
)
"""Advice about Kubernetes errors, for all targets."""


def next_step(advice: Iterable[Advice], message: str) -> str:
    """Return what to do about a message; empty where unknown. The first that fits counts."""
    for each in (*advice, *EVERYWHERE):
        if found := re.search(each.pattern, message, re.DOTALL):
            return each.fix.format(**found.groupdict())
    return ""
