"""The last export of a filesystem that is linked to a bucket: FSx exports changes some time after they were
made, and deletes a filesystem with what it has not exported.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from infra.errors import Problem, TrainyardError
from infra.stackfile import Stack
from infra.targets.aws.account import backend
from infra.targets.aws.account.rights import TAG
from infra.targets.data_types import DataResource

LINK = "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation"
_POLL_SECONDS = 30
_FIX = (
    "put it right, and run `trainyard down` again; or give up what the bucket lacks: `link: false` of the"
    " filesystem, and `trainyard up`, before it"
)


def export(
    stack: Stack, lost: DataResource, resources: Sequence[Mapping[str, Any]], log: Callable[[str], None]
) -> None:
    """Export what the linked bucket lacks, and wait. Raises TrainyardError: something was not exported."""
    if not any(each["type"] == LINK and each["inputs"].get("fileSystemId") == lost.id for each in resources):
        return
    fsx, tags = backend.clients(stack.target.price_region)("fsx"), [{"Key": TAG, "Value": stack.name}]
    asked = {"Type": "EXPORT_TO_REPOSITORY", "FileSystemId": lost.id, "Report": {"Enabled": False}}
    try:
        task = fsx.create_data_repository_task(**asked, Tags=tags)["DataRepositoryTask"]
        while task["Lifecycle"] in {"PENDING", "EXECUTING"}:
            log(f"exporting {lost} to its bucket: {task['TaskId']}, files: {task.get('Status', {})}")
            time.sleep(_POLL_SECONDS)
            (task,) = fsx.describe_data_repository_tasks(TaskIds=[task["TaskId"]])["DataRepositoryTasks"]
        got = f"{task['TaskId']}: {task['Lifecycle']}, {task.get('Status')}, {task.get('FailureDetails')}"
        is_whole = task["Lifecycle"] == "SUCCEEDED" and not task.get("Status", {}).get("FailedCount")
    except ClientError as error:
        is_whole, got = False, str(error)
    if not is_whole:
        raise TrainyardError([Problem(f"export of {lost}", got, "all files exported", _FIX)])
