"""AWS, as moto has it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rehearsal.aws.account import Account
from rehearsal.aws.client import clients
from rehearsal.aws.existing import Existing
from rehearsal.fake import Fake, Stack, Started

PACKAGE = "aws"


@contextmanager
def _start(stack: Stack, folder: Path) -> Iterator[Started]:
    region = stack["provider"]["region"]
    with Account(region, _existing(stack)) as account:
        yield Started({PACKAGE: account}, clients(region, folder / PACKAGE))


def _existing(stack: Stack) -> Existing:
    """Return what the stack file says is in the account already."""
    provider = stack["provider"]
    network = provider["network"].get("existing")
    cluster = provider.get("existing_cluster")
    filesystem = (provider.get("filesystem") or {}).get("existing")
    groups = [each["security_group"] for each in (cluster, filesystem) if each]
    return Existing(
        vpc=network["id"] if network else "",
        subnets=network["subnets"] if network else {},
        groups=groups if network else [],
        cluster=cluster["name"] if cluster else "",
        bucket=stack["storage"]["object_store"]["bucket"] if provider.get("existing_bucket") else "",
    )


FAKE = Fake(_start)
