"""What to do where Azure refuses."""

from __future__ import annotations

from infra.targets.advice import Advice

_AGAIN = "and run the same command again: what is done is kept"
ADVICE = (
    Advice(
        r"AllocationFailed|OverconstrainedZonalAllocationRequest|OverconstrainedAllocationRequest|SkuNotAvailable",
        "the region has none of these machines now: wait, or give the pool another zone or machine, or"
        f" `provisioning: queued`, with which it begins empty, {_AGAIN}",
    ),
    Advice(
        r"not registered to use namespace '(?P<namespace>[\w.]+)'",
        f"`az provider register --namespace {{namespace}} --wait`, {_AGAIN}",
    ),
    Advice(
        r"'(?P<namespace>[\w.]+)/(?P<feature>\w+)' feature is not enabled",
        "`az feature register --namespace {namespace} --name {feature}`; once `az feature show` says"
        " Registered,"
        f" `az provider register --namespace {{namespace}}`, {_AGAIN}",
    ),
    Advice(
        r"PrincipalNotFound",
        f"Entra takes some seconds to make a new identity known everywhere: wait a minute, {_AGAIN}",
    ),
    Advice(
        r"Insufficient vcpu quota.*for family \w+|exceeding approved \w+ Cores quota",
        f"ask for more cores of the family (`trainyard doctor` names them): Subscriptions > Usage +"
        f" quotas, {_AGAIN}",
    ),
    Advice(
        r"InUseSubnetCannotBeDeleted.*is in use by (?P<left>\S+)",
        "something that the cluster made is left: {left}. Remove it (`az resource delete --ids …`),"
        f" {_AGAIN}",
    ),
)
"""In the order in which they are tried."""
