"""Fills in templates of IDs and URLs: `projects/{project}/global/networks/{name}`."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from rehearsal.wire import UNKNOWN

_PLACEHOLDER = re.compile(r"\{(\w+)(!?)\}")


def filled(template: str, values: Mapping[str, Any]) -> str | None:
    """Fill a template in, `{x!}` quoted for a URL; None where a value is missing or not known yet."""
    asked = [name for name, _ in _PLACEHOLDER.findall(template)]
    if any(not isinstance(values.get(name), str) or UNKNOWN in values[name] for name in asked):
        return None
    return _PLACEHOLDER.sub(
        lambda found: quote(values[found[1]], safe="") if found[2] else values[found[1]], template
    )
