"""The lines of a new target, added to this process: one in each of the two registries."""

from typing import Any, cast

from infra.common import target_registry as registry

cast(dict[str, Any], registry.TARGETS)["toy"] = "tests.infra.targets.toy.target:TARGET"
