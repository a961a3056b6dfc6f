"""Known Azure error messages, and what to do about each."""

from __future__ import annotations

from infra.targets.advice import RUN_AGAIN, Advice, unreachable

ADVICE = (
    Advice(
        r"AllocationFailed|OverconstrainedZonalAllocationRequest|OverconstrainedAllocationRequest|SkuNotAvailable",
        "the region has none of these machines now: wait, or give the pool another zone or machine, or"
        f" `capacity: spot` or `provisioning: all-at-once`, with which it begins empty, {RUN_AGAIN}",
    ),
    Advice(
        r"not registered to use namespace '(?P<namespace>[\w.]+)'",
        f"`az provider register --namespace {{namespace}} --wait`, {RUN_AGAIN}",
    ),
    Advice(
        r"'(?P<namespace>[\w.]+)/(?P<feature>\w+)' feature is not enabled",
        "`az feature register --namespace {namespace} --name {feature}`; once `az feature show` prints"
        f" Registered, `az provider register --namespace {{namespace}}`, {RUN_AGAIN}",
    ),
    Advice(
        r"PrincipalNotFound",
        f"Entra takes some seconds to propagate a new identity: wait a minute, {RUN_AGAIN}",
    ),
    Advice(
        r"Insufficient vcpu quota.*for family \w+|exceeding approved \w+ Cores quota",
        "ask for more cores of the family (`trainyard doctor` names them): Subscriptions > Usage + quotas,"
        f" {RUN_AGAIN}",
    ),
    Advice(
        r"InUseSubnetCannotBeDeleted.*is in use by (?P<left>\S+)",
        "a resource that the cluster created remains: {left}. Remove it (`az resource delete --ids …`),"
        f" {RUN_AGAIN}",
    ),
    unreachable("target.access.public_cidrs"),
)
"""Advice for Azure's error messages, in the order in which patterns are tried."""
