"""Chart values of EKS's DRA driver for EFA (DRANET), by which pods claim NICs.

Values: aws/eks-charts, stable/aws-dranet 1.0.0, read 2026-11-22.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from infra.common import names
from infra.common.images import split

CHART = "aws-dranet"
NAMESPACE = "aws-dranet"


def values(images: Mapping[str, str], fabrics: Sequence[str]) -> dict[str, Any]:
    """Return the chart's values: it runs on nodes whose devices are claimed, and on no other.

    On these the device plugin does not: the two would give out the same NICs twice.
    """
    registry, repository, tag = split(images["driver"])
    return {
        "image": {"repository": f"{registry}/{repository}", "tag": tag},
        # The chart's default lists machine types.
        "supportedInstanceLabels": {"keys": [names.FABRIC_LABEL], "values": list(fabrics)},
        # Pods use the devices of a node until it is deleted.
        "tolerations": [{"operator": "Exists"}],
    }
