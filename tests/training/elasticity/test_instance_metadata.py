"""Preemption notices from each cloud's metadata service, which a strict local server fakes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import TIMEOUT_SECONDS, wait_for
from tests.servers import QuietHandler, serving
from tests.training.launch import events
from tests.training.test_trainer import configure
from trainyard_train.elasticity.instance_metadata import Aws, Azure, Gcp, Watch, metadata_of
from trainyard_train.elasticity.preemption import PreemptionNotice
from trainyard_train.launchers import process_group
from trainyard_train.trainer import Trainer


class FakeMetadataService:
    """The answers of a metadata service by path; it refuses requests without the cloud's headers."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, str]] = {}
        self.tokens: list[str] = []
        self.base = ""

    def answer(self, verb: str, path: str, headers: Any) -> tuple[int, str]:
        if path == "/latest/api/token":
            if verb != "PUT" or "X-aws-ec2-metadata-token-ttl-seconds" not in headers:
                return 400, "a token is PUT, with its time to live"
            self.tokens.append(f"token-{len(self.tokens)}")
            return 200, self.tokens[-1]
        if path.startswith("/latest/") and headers.get("X-aws-ec2-metadata-token") not in self.tokens[-1:]:
            return 401, "IMDSv2 wants a token"
        if path.startswith("/computeMetadata/") and headers.get("Metadata-Flavor") != "Google":
            return 403, "Metadata-Flavor: Google is missing"
        if path.startswith("/metadata/") and headers.get("Metadata") != "true":
            return 400, "Metadata: true is missing"
        return self.answers.get(path.partition("?")[0], (404, "not found"))


@pytest.fixture
def cloud() -> Iterator[FakeMetadataService]:
    service = FakeMetadataService()

    class MetadataHandler(QuietHandler):
        def _answer(self) -> None:
            status, text = service.answer(self.command, self.path, self.headers)
            self.respond(status, text.encode())

        do_GET = do_PUT = _answer

    with serving(MetadataHandler) as server:
        service.base = f"http://127.0.0.1:{server.server_port}"
        yield service


ACTION = "/latest/meta-data/spot/instance-action"


def test_aws_reports_an_interruption_to_clients_with_a_token(cloud: FakeMetadataService) -> None:
    aws = Aws(cloud.base)
    assert aws.notice() == ""
    assert aws.notice() == ""
    assert len(cloud.tokens) == 1, "a token serves many times"
    cloud.tokens.append("newer")  # as if the first one had expired
    cloud.answers[ACTION] = (200, json.dumps({"action": "terminate", "time": "2026-11-21T20:00:00Z"}))
    assert aws.notice() == "EC2 will terminate this instance at 2026-11-21T20:00:00Z"


def test_gcp_reports_preemption_and_maintenance_that_ends_the_machine(cloud: FakeMetadataService) -> None:
    gcp = Gcp(cloud.base)
    instance = "/computeMetadata/v1/instance"
    cloud.answers = {f"{instance}/preempted": (200, "FALSE"), f"{instance}/maintenance-event": (200, "NONE")}
    assert gcp.notice() == ""
    cloud.answers[f"{instance}/maintenance-event"] = (200, "MIGRATE_ON_HOST_MAINTENANCE")
    assert gcp.notice() == "", "a machine that moves goes on"
    cloud.answers[f"{instance}/maintenance-event"] = (200, "TERMINATE_ON_HOST_MAINTENANCE")
    assert "TERMINATE_ON_HOST_MAINTENANCE" in gcp.notice()
    cloud.answers[f"{instance}/preempted"] = (200, "TRUE")
    assert gcp.notice() == "Compute Engine preempts this instance"


def azure_event(kind: str, *machines: str) -> str:
    event = {
        "EventId": "1",
        "EventType": kind,
        "ResourceType": "VirtualMachine",
        "Resources": list(machines),
        "EventStatus": "Scheduled",
        "NotBefore": "Sat, 21 Nov 2026 20:00:00 GMT",
    }
    return json.dumps({"DocumentIncarnation": 1, "Events": [event]})


def test_azure_reports_events_of_this_machine_only(cloud: FakeMetadataService) -> None:
    azure = Azure(cloud.base)
    events_path = "/metadata/scheduledevents"
    cloud.answers["/metadata/instance/compute/name"] = (200, "node-1")
    cloud.answers[events_path] = (200, json.dumps({"DocumentIncarnation": 0, "Events": []}))
    assert azure.notice() == ""
    cloud.answers[events_path] = (200, azure_event("Preempt", "node-2"))
    assert azure.notice() == ""
    cloud.answers[events_path] = (200, azure_event("Freeze", "node-1"))
    assert azure.notice() == "", "seconds of standstill"
    cloud.answers[events_path] = (200, azure_event("Preempt", "node-2", "node-1"))
    assert azure.notice() == ("Azure announces Preempt of node-1, not before Sat, 21 Nov 2026 20:00:00 GMT")


def test_each_cloud_is_found_where_its_own_tools_look() -> None:
    assert metadata_of("aws", {}).base == "http://169.254.169.254"
    assert metadata_of("azure", {}).base == "http://169.254.169.254"
    assert metadata_of("gcp", {}).base == "http://metadata.google.internal"
    assert metadata_of("gcp", {"GCE_METADATA_HOST": "127.0.0.1:1"}).base == "http://127.0.0.1:1"
    elsewhere = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:2"}
    assert metadata_of("aws", elsewhere).base == "http://127.0.0.1:2"


@pytest.mark.parametrize("text", ["{", "[]", '{"action": 1}', "\x00"])
def test_an_answer_that_makes_no_sense_is_reported_once_and_ends_nothing(
    cloud: FakeMetadataService, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud.answers[ACTION] = (200, text)
    watch = Watch(Aws(cloud.base), pytest.fail)
    assert [watch.ask(), watch.ask()] == ["", ""]
    assert capsys.readouterr().err.count("notices of Aws cannot be received") == 1


@pytest.mark.parametrize("cloud_type", [Aws, Gcp, Azure])
def test_a_missing_or_failing_service_is_reported_once(
    cloud: FakeMetadataService, cloud_type: type[Aws], capsys: pytest.CaptureFixture[str]
) -> None:
    cloud.answers = dict.fromkeys([ACTION], (500, "internal error"))
    for base in ("http://127.0.0.1:9", cloud.base):
        watch = Watch(cloud_type(base), pytest.fail)
        assert [watch.ask(), watch.ask()] == ["", ""]
        assert capsys.readouterr().err.count("SIGTERM is still") == 1


def test_a_preemption_notice_of_the_cloud_saves_and_exits(
    cloud: FakeMetadataService,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Pausing(PreemptionNotice):
        """The notice comes in the pause after the first step, which lasts until it has been received."""

        def sleep(self, seconds: float) -> None:
            cloud.answers[ACTION] = (200, json.dumps({"action": "stop", "time": "soon"}))
            super().sleep(600)

    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", cloud.base)
    config = configure(tmp_path, notices="aws")
    notice = Pausing(exit_seconds=1e6)  # its deadline would end the tests
    Watch(metadata_of("aws"), notice.deliver, poll_seconds=0.02).start()
    assert not Trainer(config, process_group.join(config.timeouts, {}), notice).run(0)
    assert len(events(tmp_path, "preempted")) == 1
    assert "EC2 will stop this instance at soon: saving at the end of this step" in capsys.readouterr().err


@pytest.mark.ranks
def test_a_run_that_asks_aws_exits_with_a_retrys_code(cloud: FakeMetadataService, tmp_path: Path) -> None:
    settings = [f"run_dir={tmp_path}", "notices=aws", "steps=2000", "pace_seconds=0.05", "timeouts.leave=60"]
    command = [
        sys.executable,
        "-m",
        "trainyard_train.train",
        *(part for text in settings for part in ("--set", text)),
    ]
    environment = os.environ | {"AWS_EC2_METADATA_SERVICE_ENDPOINT": cloud.base}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: bool(events(tmp_path, "step")))
    cloud.answers[ACTION] = (200, json.dumps({"action": "terminate", "time": "2026-11-21T20:00:00Z"}))
    assert "EC2 will terminate this instance" in process.communicate(timeout=TIMEOUT_SECONDS)[1]
    assert process.returncode == 75
    assert len(events(tmp_path, "preempted")) == 1
