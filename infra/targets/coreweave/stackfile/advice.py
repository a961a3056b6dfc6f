"""Known CoreWeave error messages, and what to do about each."""

from __future__ import annotations

from infra.targets.advice import RUN_AGAIN, Advice, unreachable

ADVICE = (
    Advice(
        r"NodePool[/ ](?P<pool>[\w-]+).*currentNodes|NodePool.*timed out",
        "`kubectl describe nodepool` shows what is missing (Quota: ask CoreWeave for more; Capacity: wait,"
        f" or name another instance type or zone), {RUN_AGAIN}",
    ),
    Advice(
        r"cluster is not Healthy",
        "CoreWeave deletes only Healthy clusters: wait until the console shows this status, or ask"
        f" CoreWeave's support, {RUN_AGAIN}",
    ),
    unreachable("target.public_endpoint"),
)
"""Advice for CoreWeave's error messages, in the order in which patterns are tried."""
