"""The types that policies name exist in the providers' SDKs: a misspelt type would never be evaluated."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path

import pytest

from policies.pack import POLICIES

pytestmark = pytest.mark.clouds

SDKS = ("pulumi_aws", "pulumi_azure_native", "pulumi_coreweave", "pulumi_gcp", "pulumi_kubernetes")
REGISTERED = re.compile(r'"([a-z-]+:[^":\s]*:\w+)": "\w+"')
"""Pattern of a type in the JSON registry of resources in an SDK's `__init__.py`."""
OTHERS = (
    "pulumi:*",
    "trainyard:*",
    "aws-native:*",
    "azure:*",
    "command:*",
    # Version 2 of azure-native.
    "azure-native:documentdb:DatabaseAccount",
    "azure-native:netapp:Pool",
    "azure-native:netapp:Volume",
    # Custom resources.
    "kubernetes:compute.coreweave.com/*",
    "kubernetes:*.fluxcd.io/*",
    "kubernetes:argoproj.io/*",
    "kubernetes:jobset.x-k8s.io/*",
    "kubernetes:karpenter.sh/*",
    "kubernetes:*kubeflow.org/*",
    "kubernetes:kueue.x-k8s.io/*",
    "kubernetes:ray.io/*",
)
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
    unknown = {pattern for pattern in patterns if not any(fnmatchcase(each, pattern) for each in types)}
    assert {each for each in unknown if not any(fnmatchcase(each, other) for other in OTHERS)} == set()
