"""`down` exports what the linked bucket lacks before it deletes the filesystem; botocore's model answers."""

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.stub import Stubber

from infra.common.target_registry import target_of
from infra.errors import TrainyardError
from infra.stackfile import Stack
from infra.targets.aws.account import exports
from infra.targets.data_types import DataResource
from rehearsal.aws.models import client

ID, OTHER = "fs-0123456789abcdef0", "fs-0123456789abcdef1"
KIND = target_of("aws").data["aws:fsx/lustreFileSystem:LustreFileSystem"]
ASKED: dict[str, Any] = {"Type": "EXPORT_TO_REPOSITORY", "FileSystemId": ID, "Report": {"Enabled": False}}
ASKED |= {"Tags": [{"Key": "trainyard.dev/stack", "Value": "training"}]}


def task(lifecycle: str, **status: int) -> dict[str, Any]:
    made = {"CreationTime": 0, "Type": "EXPORT_TO_REPOSITORY", "FileSystemId": ID, "Status": status}
    return {"TaskId": "task-0123456789abcdef0", "Lifecycle": lifecycle, **made}


def run(stack: Stack, linked: str = ID) -> list[str]:
    lines: list[str] = []
    filesystem = DataResource("urn", KIND, {"storageCapacity": 19200}, ID, name="training-lustre")
    exports.export(
        stack, filesystem, [{"type": exports.LINK, "inputs": {"fileSystemId": linked}}], lines.append
    )
    return lines


@pytest.fixture
def fsx(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stubber]:
    monkeypatch.setattr(exports, "_POLL_SECONDS", 0)
    with Stubber(client("fsx", "us-east-2")) as stubber:
        monkeypatch.setattr(f"{exports.__package__}.backend.clients", lambda _: lambda _: stubber.client)
        yield stubber
        stubber.assert_no_pending_responses()


def test_a_linked_filesystem_is_exported_to_the_end_and_another_one_is_not(aws: Stack, fsx: Stubber) -> None:
    fsx.add_response("create_data_repository_task", {"DataRepositoryTask": task("PENDING")}, ASKED)
    for each in (task("EXECUTING", TotalCount=9000), task("SUCCEEDED")):
        fsx.add_response("describe_data_repository_tasks", {"DataRepositoryTasks": [each]})
    assert "'TotalCount': 9000" in run(aws)[-1]
    assert run(aws, linked=OTHER) == []


@pytest.mark.parametrize("ended", [task("FAILED"), task("CANCELED"), task("SUCCEEDED", FailedCount=2), {}])
def test_what_is_not_exported_stops_the_down(aws: Stack, fsx: Stubber, ended: dict[str, Any]) -> None:
    if ended:
        fsx.add_response("create_data_repository_task", {"DataRepositoryTask": ended}, ASKED)
    else:
        fsx.add_client_error("create_data_repository_task", "DataRepositoryTaskExecuting", "one runs")
    with pytest.raises(TrainyardError, match="link: false") as caught:
        run(aws)
    assert (ended.get("Lifecycle") or "one runs") in caught.value.problems[0].got
