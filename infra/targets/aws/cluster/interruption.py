"""An SQS queue of EC2's interruption events (spot interruption, rebalance, state change, health), for nodes
that EKS does not drain.

Managed node groups drain by themselves, so a stack has the queue only where it asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping

import pulumi
import pulumi_aws as aws

from infra.targets.aws.cluster.keys import Keys
from infra.targets.aws.cluster.policy import allow, document
from infra.targets.aws.cluster.scope import Scope

EVENTS: Mapping[str, tuple[str, str]] = {
    "spot": ("aws.ec2", "EC2 Spot Instance Interruption Warning"),
    "rebalance": ("aws.ec2", "EC2 Instance Rebalance Recommendation"),
    "state": ("aws.ec2", "EC2 Instance State-change Notification"),
    "scheduled": ("aws.health", "AWS Health Event"),
}
"""Role → source and detail type of the EventBridge event."""
RETENTION_SECONDS = 300
"""Retention of a message; a preemption notice is useless after two minutes."""


def make_queue(scope: Scope, keys: Keys) -> pulumi.Output[str]:
    """Make the queue and the rules that fill it; return its URL."""
    name = scope.named("interruptions")
    queue = aws.sqs.Queue(
        name,
        name=name,
        message_retention_seconds=RETENTION_SECONDS,
        kms_master_key_id=keys.cluster,
        region=scope.region,
        opts=scope.options(),
    )
    rules = scope.arn("events", f"rule/{name}-*")
    send = allow(
        ["sqs:SendMessage"],
        scope.arn("sqs", name),
        Principal={"Service": "events.amazonaws.com"},
        Condition={"ArnLike": {"aws:SourceArn": rules}},
    )
    aws.sqs.QueuePolicy(
        name, queue_url=queue.url, policy=document(send), region=scope.region, opts=scope.options()
    )
    for role, (source, detail) in EVENTS.items():
        _rule(scope, f"{name}-{role}", source, detail, queue)
    return queue.url


def _rule(scope: Scope, name: str, source: str, detail: str, queue: aws.sqs.Queue) -> None:
    pattern = pulumi.Output.json_dumps({"source": [source], "detail-type": [detail]})
    rule = aws.cloudwatch.EventRule(
        name, name=name, event_pattern=pattern, region=scope.region, opts=scope.options()
    )
    aws.cloudwatch.EventTarget(name, rule=rule.name, arn=queue.arn, region=scope.region, opts=scope.options())
