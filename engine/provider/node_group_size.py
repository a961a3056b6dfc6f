"""`trainyard:aws:NodeGroupSize`: how many nodes a node group of EKS is to have, asked for and not waited for.

A group that asks for nodes when it is made is CREATE_FAILED where EC2 has none, and takes no change any more
(aws/containers-roadmap#2204). One that is made empty is there at once; asked for nodes then, it gets them
when EC2 has some. It is asked when the stack's number changes: sizes that somebody else chooses in between (a
rolling update) stay.
"""

from __future__ import annotations

from typing import Any

from engine.provider.resource import Failure, Gone, Inputs, Live, Outputs, Progress, Resource
from infra.errors import Problem, TrainyardError

_TEXTS = ("region", "cluster", "nodeGroup")
_NUMBERS = ("minSize", "size")
_LABELS = "labels"
"""Of its nodes: they say which pool the group belongs to. EKS is told them with the group itself."""
_BUSY = "ResourceInUseException"
"""An update of the group is under way."""


class NodeGroupSize(Resource):
    """At least `minSize` nodes, and `size` as soon as there are machines. Nodes go with their group."""

    TYPE = "trainyard:aws:NodeGroupSize"
    REPLACES = frozenset(_TEXTS)

    def check(self, inputs: Inputs) -> list[Failure]:
        failures = [
            Failure(name, "is required, as a string")
            for name in _TEXTS
            if not isinstance(inputs.get(name), str)
        ]
        failures += [
            Failure(name, "is required, as a whole number")
            for name in _NUMBERS
            if not isinstance(inputs.get(name), int)
        ]
        others = sorted(inputs.keys() - {*_TEXTS, *_NUMBERS, _LABELS})
        return failures + [Failure(name, "is no property of this type") for name in others]

    def identify(self, inputs: Inputs) -> str:
        return f"{inputs['cluster']}/{inputs['nodeGroup']}"

    def create(self, inputs: Inputs, progress: Progress) -> Outputs:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            _ask(inputs, progress)
        except (BotoCoreError, ClientError) as error:
            raise TrainyardError([_refused(inputs, str(error))]) from None
        return {}

    def read(self, inputs: Inputs, outputs: Outputs, progress: Progress) -> Live:
        from botocore.exceptions import ClientError

        try:
            _eks(inputs).describe_nodegroup(clusterName=inputs["cluster"], nodegroupName=inputs["nodeGroup"])
        except ClientError as error:
            if error.response["Error"]["Code"] == "ResourceNotFoundException":
                raise Gone from None
            raise
        # What there is need not be what was asked for, and that is no drift.
        return Live(inputs, outputs)

    def update(self, old: Inputs, new: Inputs, progress: Progress) -> Outputs:
        return self.create(new, progress)

    def delete(self, inputs: Inputs, progress: Progress) -> None:
        """Nothing: nodes go with their group."""


def _eks(inputs: Inputs) -> Any:  # noqa: ANN401 -- boto3's
    # Imported late: stacks in other clouds have no boto3.
    import boto3

    return boto3.client("eks", region_name=inputs["region"])


def _ask(inputs: Inputs, progress: Progress) -> None:
    """Ask once no other update is under way."""
    from botocore.exceptions import ClientError

    eks, group = _eks(inputs), {"clusterName": inputs["cluster"], "nodegroupName": inputs["nodeGroup"]}
    sizes = {"minSize": inputs["minSize"], "desiredSize": inputs["size"], "maxSize": inputs["size"]}
    try:
        eks.update_nodegroup_config(**group, scalingConfig=sizes)
    except ClientError as error:
        if error.response["Error"]["Code"] != _BUSY:
            raise
        progress.said(f"{inputs['nodeGroup']}: another update is under way")
        eks.get_waiter("nodegroup_active").wait(**group)
        eks.update_nodegroup_config(**group, scalingConfig=sizes)


def _refused(inputs: Inputs, told: str) -> Problem:
    fix = f"see `aws eks describe-nodegroup --cluster-name {inputs['cluster']}`, and run `up` again"
    return Problem(f"node group {inputs['nodeGroup']}", told, "an active group that can be resized", fix)
