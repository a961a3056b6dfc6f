"""Judges a stack that exists by the policies over several resources:
`pulumi stack export | python -m policies.standing [Pulumi.STACK.yaml]`.

The engine skips these policies when an update fails, so what it has created may lack its companions.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from google.protobuf import json_format, struct_pb2

from policies import wire
from policies.config import EvaluatedStack
from policies.evaluation import Finding, PolicyEvaluator
from policies.pack import POLICIES
from policies.policy import Resource
from policies.related_resources import RelatedResource, RelatedResources
from policies.unknowns import PropertyBlock


def bare(resources: Iterable[Mapping[str, Any]], config: Mapping[str, Any]) -> list[Finding]:
    """Return what the resources of a state lack; `config` is that of the stack file, with its exemptions."""
    stack = EvaluatedStack(config={key: json.dumps(value) for key, value in config.items()})
    made = (each for each in resources if each.get("custom") and not each.get("external"))
    members = RelatedResources(_member(each, stack) for each in made if not each.get("delete"))
    return [finding for finding in PolicyEvaluator(POLICIES).evaluate_stack(members) if finding.stops]


def _member(stored: Mapping[str, Any], stack: EvaluatedStack) -> RelatedResource[Resource]:
    urn = stored["urn"]
    resource = Resource(stored["type"], urn.rpartition("::")[2], urn, _block(stored, "inputs"), stack=stack)
    origins = stored.get("propertyDependencies") or {}
    outputs = PropertyBlock({**_block(stored, "outputs").data, "id": stored.get("id")})
    return RelatedResource(resource, outputs, {name: tuple(urns or ()) for name, urns in origins.items()})


def _block(stored: Mapping[str, Any], name: str) -> PropertyBlock:
    return PropertyBlock(wire.decode(json_format.ParseDict(stored.get(name) or {}, struct_pb2.Struct())))


def main() -> int:
    """Print what is bare; the exit code says whether anything is."""
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    config = (yaml.safe_load(file.read_text(encoding="utf-8")) or {}).get("config", {}) if file else {}
    found = bare(json.load(sys.stdin)["deployment"].get("resources") or [], config)
    for finding in found:
        sys.stderr.write(f"{finding.resource.urn}: {finding.message}\n")
    return min(len(found), 1)


if __name__ == "__main__":
    sys.exit(main())
