"""Validates the values of a resource with Google Cloud's API discovery documents: enums, limits, patterns.

The SDK types most of these values as plain text. `_CALLED` has the API's names of properties that the
provider names differently. Properties that the API does not have are not checked here, but by the SDK's
types.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from rehearsal.cloud import Properties, Refusal
from rehearsal.gcp.resource_paths import resource_paths
from rehearsal.wire import has_unknown

_CALLED: Mapping[tuple[str, str], str] = {
    ("AcceleratorConfig", "count"): "acceleratorCount",
    ("AcceleratorConfig", "type"): "acceleratorType",
    ("Bucket", "lifecycleRules"): "lifecycle.rule",
    ("Bucket", "publicAccessPrevention"): "iamConfiguration.publicAccessPrevention",
    ("Cluster", "datapathProvider"): "networkConfig.datapathProvider",
    ("Cluster", "enableMultiNetworking"): "networkConfig.enableMultiNetworking",
    ("Cluster", "nodeLocations"): "locations",
    ("Firewall", "allows"): "allowed",
    ("Firewall", "denies"): "denied",
    ("LoggingConfig", "enableComponents"): "componentConfig.enableComponents",
    ("MonitoringConfig", "enableComponents"): "componentConfig.enableComponents",
    ("Network", "routingMode"): "routingConfig.routingMode",
    ("NodeConfig", "guestAccelerators"): "accelerators",
    ("NodePool", "maxPodsPerNode"): "maxPodsConstraint.maxPodsPerNode",
    ("NodePool", "nodeConfig"): "config",
    ("NodePool", "nodeLocations"): "locations",
}
"""Schema and property of the provider → path in the API, where the names differ."""
_BITS = {"int32": 31, "int64": 63, "uint32": 32, "uint64": 64}
Shape = Mapping[str, Any]


@cache
def _schemas(document: str) -> Mapping[str, Shape]:
    """Read a document of the client library: `container.v1`. ModuleNotFoundError without the library."""
    folder = files("googleapiclient.discovery_cache.documents")
    schemas: Mapping[str, Shape] = json.loads(
        folder.joinpath(f"{document}.json").read_text(encoding="utf-8")
    )["schemas"]
    return schemas


def is_described(token: str) -> bool:
    """Whether a document describes a type."""
    return "like" in resource_paths().get(token, {})


def problems(token: str, inputs: Properties) -> Iterator[Refusal]:
    """Find values that the API would refuse; unknown parts are accepted."""
    if is_described(token):
        document, schema = resource_paths()[token]["like"]
        yield from _values(_schemas(document), {"$ref": schema}, inputs, "")


def _values(schemas: Mapping[str, Shape], shape: Shape, value: Any, path: str) -> Iterator[Refusal]:
    shape = schemas[shape["$ref"]] if "$ref" in shape else shape
    if isinstance(value, list):
        for index, each in enumerate(value):  # the provider may have a list where the API has one value
            yield from _values(schemas, shape.get("items", shape), each, f"{path}[{index}]")
    elif "items" in shape:  # and vice versa
        yield from _values(schemas, shape["items"], value, path)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            inner = _property(schemas, shape, key)
            if inner is not None:
                yield from _values(schemas, inner, each, f"{path}.{key}" if path else key)
    elif not has_unknown(value) and (reason := _refused(shape, value)):
        yield path, reason


def _property(schemas: Mapping[str, Shape], shape: Shape, key: str) -> Shape | None:
    """Return the shape of a property; None for one that the API does not have."""
    found: Shape | None = shape
    for name in _CALLED.get((shape.get("id", ""), key), key).split("."):
        if found is None:
            return None
        found = schemas[found["$ref"]] if "$ref" in found else found
        properties = found.get("properties", {})
        # The provider's names of lists are in the plural, the API's not always.
        found = properties.get(name) or properties.get(name.removesuffix("s")) or properties.get(f"{name}s")
    return found


def _refused(shape: Shape, value: Any) -> str | None:
    # An empty list counts as none: the provider's Go structs omit it from the request.
    text = value if isinstance(value, str) else ""
    if "enum" in shape and text and text not in shape["enum"]:
        return f"got {value!r}; allowed are {', '.join(shape['enum'])}"
    if "pattern" in shape and text and not re.fullmatch(shape["pattern"], text):
        return f"got {value!r}; what matches {shape['pattern']} is allowed"
    if shape.get("type") == "integer" or shape.get("format") in _BITS:
        return _out_of_limits(shape, value)
    return None


def _out_of_limits(shape: Shape, value: Any) -> str | None:
    if isinstance(value, bool) or not re.fullmatch(r"-?\d+", str(value)):
        return f"got {value!r}; a whole number is allowed"
    bits = _BITS.get(shape.get("format", ""), 63)
    least = int(shape.get("minimum", 0 if str(shape.get("format")).startswith("u") else -(2**bits)))
    most = int(shape.get("maximum", 2**bits - 1))
    return None if least <= int(value) <= most else f"got {value}; {least} to {most} is allowed"
