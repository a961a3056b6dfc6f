"""The components' outputs and their types, in the form of a Pulumi schema."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

MODULE = "trainyard:index:"
_DECLARED: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
OUTPUTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = _DECLARED["outputs"]
"""Component → its outputs."""
LEFT_OUT = frozenset({"secret", "outside", "preemptionNoticeSeconds", "moreLocalQueues"})
"""Properties that may be absent from an output."""


def output_types() -> dict[str, Any]:
    """Return the types of outputs as the package's schema has them."""
    return {
        MODULE + name: {
            "type": "object",
            "properties": dict(properties),
            "required": sorted(properties.keys() - LEFT_OUT),
        }
        for name, properties in _DECLARED["types"].items()
    }
