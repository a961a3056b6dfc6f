"""`trainyard:aws:NodeGroupSize`: sets how many nodes an EKS node group should have, without waiting for the
nodes.

A group whose creation asks for nodes that EC2 lacks ends as CREATE_FAILED, and accepts no further change
(aws/containers-roadmap#2204). So the group is created empty, and this resource sets its size afterwards; the
nodes come when EC2 has some.

The size is set only when the stack's number changes: sizes that others set in between (a rolling update)
stay.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from engine.provider.group_size import GroupSize, ResizeRefusedError
from engine.provider.resource import HandlerProgress, Inputs, Outputs, ReadResult, ResourceNotFound

_BUSY = "ResourceInUseException"
"""EKS error code for a running update of the group."""


class NodeGroupSize(GroupSize):
    """Sets a node group to `size` nodes, at least `minSize`, as soon as EC2 has capacity."""

    TYPE = "trainyard:aws:NodeGroupSize"
    GROUP_KIND = "node group"
    ALLOWED = "an active group that can be resized"
    STRING_INPUTS = ("region", "cluster", "nodeGroup")
    INTEGER_INPUTS = ("minSize", "size")
    BUSY_TIMEOUT_SECONDS = 40 * 60
    """Timeout of botocore's waiter for an active group: 80 times 30 s."""

    def identify(self, inputs: Inputs) -> str:
        return f"{inputs['cluster']}/{inputs['nodeGroup']}"

    def name(self, inputs: Inputs) -> str:
        return str(inputs["nodeGroup"])

    def show_command(self, inputs: Inputs) -> str:
        return f"aws eks describe-nodegroup --cluster-name {inputs['cluster']}"

    def resize(self, inputs: Inputs) -> None:
        sizes = {"minSize": inputs["minSize"], "desiredSize": inputs["size"], "maxSize": inputs["size"]}
        with _refusals():
            _eks(inputs).update_nodegroup_config(**_group(inputs), scalingConfig=sizes)

    def await_idle(self, inputs: Inputs) -> None:
        with _refusals():
            _eks(inputs).get_waiter("nodegroup_active").wait(**_group(inputs))

    def read(self, inputs: Inputs, outputs: Outputs, progress: HandlerProgress) -> ReadResult:
        from botocore.exceptions import ClientError

        try:
            _eks(inputs).describe_nodegroup(**_group(inputs))
        except ClientError as error:
            if error.response["Error"]["Code"] == "ResourceNotFoundException":
                raise ResourceNotFound from None
            raise
        # Missing nodes are not drift.
        return ReadResult(inputs, outputs)


def _eks(inputs: Inputs) -> Any:  # noqa: ANN401 -- boto3's
    # Imported late: stacks in other clouds have no boto3.
    import boto3

    return boto3.client("eks", region_name=inputs["region"])


def _group(inputs: Inputs) -> dict[str, str]:
    return {"clusterName": inputs["cluster"], "nodegroupName": inputs["nodeGroup"]}


@contextmanager
def _refusals() -> Iterator[None]:
    """Raise ResizeRefusedError for what EKS or its client raises."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        raise ResizeRefusedError(str(error), busy=error.response["Error"]["Code"] == _BUSY) from None
    except BotoCoreError as error:
        raise ResizeRefusedError(str(error)) from None
