"""`down` of a stack on an existing cluster."""

import pytest

from tests.e2e.stack import LocalStack

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]


def test_down_deletes_the_platform_and_retains_the_cluster(platform: LocalStack) -> None:
    platform.trainyard("down")
    assert not {"kueue-system", "team-research", "trainyard-storage"} & set(platform.names("namespaces"))
    assert not [name for name in platform.names("crds") if "kueue" in name or "kubeflow" in name]
    assert len(platform.names("nodes")) == 5
