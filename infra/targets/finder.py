"""`Finder`: the interface for finding cloud resources that the engine's state lacks, and its helpers.

If the engine was killed or its state was lost, no state records the resources that it had created.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Protocol
from urllib.parse import quote

import yaml

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""The engine's mark of an unknown string (`sdk/go/common/resource/plugin/rpc.go` of Pulumi)."""
_PLACEHOLDER = re.compile(r"\{(\w+)(!?)\}")


class Finder(Protocol):
    """Looks into one account for the resources of one stack."""

    def find_begun(self, token: str, name: str, inputs: Mapping[str, Any]) -> str | None:
        """Return the engine's ID of a resource whose creation began; None where nothing was made.

        `token` is its type, `name` its logical name, `inputs` are those of the creation. The default finds it
        in the same way as a resource that a preview announces; a subclass may override this.
        """
        found = self.find_announced(token, name, inputs)
        return found[0] if found else None

    def find_announced(
        self, token: str, name: str, inputs: Mapping[str, Any]
    ) -> tuple[str, dict[str, str]] | None:
        """Find a resource that a preview would create: its ID, and its name if the provider generated it.

        Raises TrainyardError if several resources match.
        """


@cache
def lookups(package: str) -> Mapping[str, Mapping[str, Any]]:
    """Return `lookups.yaml` of a package: type of resource → how it is looked up. Read once."""
    text = files(package).joinpath("lookups.yaml").read_text(encoding="utf-8")
    rows: Mapping[str, Mapping[str, Any]] = yaml.safe_load(text)
    return rows


def has_unknown(value: Any) -> bool:
    """Whether any part of a value is not known yet."""
    if isinstance(value, Mapping):
        return any(has_unknown(each) for each in value.values())
    if isinstance(value, list):
        return any(has_unknown(each) for each in value)
    return isinstance(value, str) and UNKNOWN in value


def filled(template: str, values: Mapping[str, Any]) -> str | None:
    """Fill a template in, `{x!}` quoted for a URL; None where a value is missing or not known yet."""
    asked = [name for name, _ in _PLACEHOLDER.findall(template)]
    if any(not isinstance(values.get(name), str) or UNKNOWN in values[name] for name in asked):
        return None
    return _PLACEHOLDER.sub(
        lambda found: quote(values[found[1]], safe="") if found[2] else values[found[1]], template
    )
