"""The types that policies name exist in the providers' SDKs: a misspelt type would never be evaluated."""

import re
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path

import pytest

from policies.pack import POLICIES
from policies.rules import SETTINGS
from policies.security.deletion_protection import PROTECTED
from policies.security.tls import OFF_BY_DEFAULT
from tests.tables import table

pytestmark = pytest.mark.clouds

SDKS = ("pulumi_aws", "pulumi_azure_native", "pulumi_coreweave", "pulumi_gcp", "pulumi_kubernetes")
REGISTERED = re.compile(r'"([a-z-]+:[^":\s]*:\w+)": "\w+"')
"""Pattern of a type in the JSON registry of resources in an SDK's `__init__.py`."""
OTHERS = table(__file__)
"""Types that no installed SDK has."""


def registered(package: str) -> set[str]:
    """Return the types of an SDK, read from its text, since its import takes seconds."""
    spec = find_spec(package)
    assert spec and spec.origin
    return set(REGISTERED.findall(Path(spec.origin).read_text(encoding="utf-8")))


def test_every_type_of_a_policy_exists_in_its_provider() -> None:
    types = set.union(*map(registered, SDKS))
    assert len(types) > 5000
    patterns = {pattern for policy in POLICIES for pattern in (*policy.types, *policy.together_with)}
    patterns |= {*PROTECTED, *OFF_BY_DEFAULT}
    for part in SETTINGS.values():
        patterns |= {*part.get("types", ()), *part.get("keys", ())}
    unknown = {pattern for pattern in patterns if not any(fnmatchcase(each, pattern) for each in types)}
    assert {each for each in unknown if not any(fnmatchcase(each, other) for other in OTHERS)} == set()
