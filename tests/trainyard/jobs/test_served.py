"""A cluster that does not serve a kind, and one that has no objects of it, get different answers."""

from collections.abc import Iterator

import pytest
import yaml

from infra.clients.kubernetes import ApiServer
from infra.clients.kubernetes.api import path_of
from infra.errors import TrainyardError
from tests.servers import QuietHandler, kubeconfig_of, serving
from trainyard.jobs.key import LOCAL_QUEUES, TRAIN_JOBS
from trainyard.jobs.served import check_served
from trainyard.jobs.state import Jobs


class OldKueue(QuietHandler):
    """Serves Kueue as 0.14 did, and no Trainer."""

    def do_GET(self) -> None:
        if self.path == "/apis/kueue.x-k8s.io":
            self.respond(200, {"kind": "APIGroup", "versions": [{"version": "v1beta1"}]})
        else:
            self.respond(404, {"message": "the server could not find the requested resource"})


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with serving(OldKueue) as listening:
        yield ApiServer.of(yaml.safe_dump(kubeconfig_of(f"http://127.0.0.1:{listening.server_port}")))


def test_a_version_that_is_not_served_is_named_with_the_least_release(api: ApiServer) -> None:
    with pytest.raises(TrainyardError, match=r"its Kueue serves v1beta1") as caught:
        check_served(api, path_of(LOCAL_QUEUES, "team-research"))
    assert caught.value.problems[0].allowed == "v1beta2, of Kueue 0.15 or newer"


def test_a_cluster_without_the_operator_has_none_of_its_objects_unless_they_are_needed(
    api: ApiServer,
) -> None:
    check_served(api, path_of(TRAIN_JOBS))
    assert Jobs(api).of_teams() == []
    with pytest.raises(TrainyardError, match="it has no Kubeflow Trainer"):
        check_served(api, path_of(TRAIN_JOBS), needed=True)
