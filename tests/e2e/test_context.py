"""A stack on an existing cluster, reached by a context: an embedded cluster without our platform."""

import pytest

from tests.e2e.stack import LocalStack

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]


def test_a_preview_lists_new_resources_and_creates_nothing(guest: LocalStack) -> None:
    before = guest.names("namespaces")
    assert guest.trainyard("preview").changes["created"] > 100
    assert guest.names("namespaces") == before


def test_the_platform_comes_up_on_an_existing_cluster_after_kills(platform: LocalStack) -> None:
    assert platform.names("clusterqueues") == ["gpu"]
    deployments = platform.get("deployments", "-A")["items"]
    assert len(deployments) == 8, "four operators, object store, controller, what takes code of each team"
    assert {item["status"]["readyReplicas"] for item in deployments} == {1}


def test_up_changes_nothing_and_runs_a_job_by_the_context(platform: LocalStack) -> None:
    output = platform.trainyard("up", "--job", str(platform.job_file))
    assert list(output.changes) == ["unchanged"]
    assert "admitted to" in output.text
    assert "pods run on" in output.text
    assert "node 0 | training:" in output.text, "what the nodes write is shown"
    assert "digits: complete" in output.text
    platform.trainyard("cancel", "digits")
    platform.wait_until(lambda: platform.names("trainjobs", "-A") == [], "the cluster without the job")
