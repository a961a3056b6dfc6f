"""Records what a run was started from: code, image, command, data, commit."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final

VARIABLE: Final = "TRAINYARD_ORIGIN"
"""Variable with the origin as JSON, which `trainyard run` and `trainyard submit` set."""


def origin_of(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return what is known; empty if it is not given or cannot be read."""
    try:
        found = json.loads(environment.get(VARIABLE, "{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def recorded(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return it as a field of the metrics; none where nothing is known."""
    return {"origin": found} if (found := origin_of(environment)) else {}
