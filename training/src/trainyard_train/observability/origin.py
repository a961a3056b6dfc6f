"""Reads what a run was started from (code, image, command, data, commit) out of the variable
TRAINYARD_ORIGIN.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final

VARIABLE: Final = "TRAINYARD_ORIGIN"
"""Variable with the origin as JSON, which `trainyard run` sets."""


def origin_of(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return the origin; empty if the variable is not set or cannot be read."""
    try:
        found = json.loads(environment.get(VARIABLE, "{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def recorded(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return the origin as a field of the metrics; no field if it is unknown."""
    return {"origin": found} if (found := origin_of(environment)) else {}
