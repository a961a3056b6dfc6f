"""Requests the nodes of EKS node groups that are created empty: immediately, or when a capacity block begins.

A capacity block has no instances before it begins, and EC2 terminates them from 30 minutes before its end on.
Scheduled actions of the scaling group therefore set the size at the beginning, and set it to zero before the
end (EKS user guide, "Create self-managed nodes with Capacity Blocks for ML"; managed node groups have the
same scaling groups).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Literal

import pulumi
import pulumi_aws as aws

from infra.common import names
from infra.targets.aws.cluster.autoscaler import scaling_group
from infra.targets.aws.cluster.scope import Scope
from infra.targets.aws.stackfile.groups import NodeGroup

DRAIN_BEFORE_END = timedelta(minutes=45)
"""Time before a capacity block's end at which its group is drained; EC2 terminates from 30 minutes before
the end."""


class NodeGroupSize(pulumi.CustomResource):
    """Sets the number of nodes of an existing group; a resource type of our plugin."""

    def __init__(self, name: str, inputs: Mapping[str, object], opts: pulumi.ResourceOptions) -> None:
        super().__init__("trainyard:aws:NodeGroupSize", name, dict(inputs), opts)


def fill(scope: Scope, group: NodeGroup, made: aws.eks.NodeGroup) -> None:
    """Request the group's nodes as capacity allows, within its capacity block's window if it has one."""
    now = _now()
    begins, ends = _reservation_window(group)
    if begins and now < begins:
        _schedule_resize(scope, group, made, when=begins, what="begin")
    elif ends is None or now < ends:
        _request_size(scope, group, made)
    if ends and now < ends:
        _schedule_resize(scope, group, made, when=ends, what="end")


def _reservation_window(group: NodeGroup) -> tuple[datetime | None, datetime | None]:
    """Return begin and end of a capacity block; None for capacity without a schedule."""
    reservation = group.pool.reservation
    if reservation is None or reservation.starts is None or reservation.ends is None:
        return None, None
    return reservation.begins_at, reservation.ends_at - DRAIN_BEFORE_END


def _request_size(scope: Scope, group: NodeGroup, made: aws.eks.NodeGroup) -> None:
    is_on_demand = not group.pool.is_spot and not group.is_block  # fewer nodes than requested are an error
    NodeGroupSize(
        scope.named(group.role),
        {
            "region": scope.region,
            "cluster": made.cluster_name,
            "nodeGroup": made.node_group_name,
            "minSize": group.num_nodes if is_on_demand else 0,
            "size": group.num_nodes,
            "labels": {names.POOL_LABEL: group.pool.name},
        },
        # Trainyard's provider, not the AWS provider of the scope.
        pulumi.ResourceOptions(parent=scope.parent, deleted_with=made),
    )


def _schedule_resize(
    scope: Scope, group: NodeGroup, made: aws.eks.NodeGroup, *, when: datetime, what: Literal["begin", "end"]
) -> None:
    """Have the scaling group resized at a time; another time is another action.

    Where the moment passes before the group exists, EC2 refuses an action in the past: the next `up` asks
    for the nodes at once (spec/advice.py).
    """
    name = scope.named(f"{group.role}-{what}-{when:%Y%m%d%H%M}")
    aws.autoscaling.Schedule(
        name,
        autoscaling_group_name=made.resources.apply(scaling_group),
        scheduled_action_name=name,
        min_size=0,
        max_size=group.num_nodes,
        desired_capacity=group.num_nodes if what == "begin" else 0,
        start_time=f"{when:%Y-%m-%dT%H:%M:%SZ}",
        region=scope.region,
        opts=scope.options(),
    )


def _now() -> datetime:
    return datetime.now(UTC)
