"""boto3 clients by which a rehearsal on AWS finds resources of an interrupted run: moto answers, and what
moto lacks is reported as not found.

Placement groups, which moto lacks, are looked up among the fake's resources.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from rehearsal.aws import models
from rehearsal.store import ResourceStore

PLACEMENT_GROUP = "aws:ec2/placementGroup:PlacementGroup"


def clients(region: str, resource_folder: Path) -> Callable[[str], Any]:
    """Return a factory of clients by service; `resource_folder` holds the resources that the fake has."""

    def client(service: str) -> Client:
        kind = Ec2 if service == "ec2" else Client
        return kind(models.client(service, region), resource_folder)

    return client


class Client:
    """A client of moto that answers like AWS; what moto does not implement is reported as not found."""

    def __init__(self, client: Any, resource_folder: Path) -> None:
        self._client = client
        self._resource_folder = resource_folder

    def __getattr__(self, operation: str) -> Any:
        call = getattr(self._client, operation)

        def answer(**parameters: Any) -> Any:
            with _gaps_as_not_found(operation):
                return call(**parameters)

        return answer

    def can_paginate(self, operation: str) -> bool:
        """Whether an answer may come in parts."""
        return bool(self._client.can_paginate(operation))

    def get_paginator(self, operation: str) -> "_Paginator":
        """Return what reads an answer part by part."""
        return _Paginator(self._client.get_paginator(operation), operation)


class Ec2(Client):
    """A client of EC2 that knows placement groups, which moto lacks.

    The engine tells two resources of one type apart by generated names. A group that is not found would be
    created a second time, and a launch template that names it would replace its nodes.
    """

    def can_paginate(self, operation: str) -> bool:
        """Whether an answer may come in parts."""
        return not hasattr(type(self), operation) and super().can_paginate(operation)

    def describe_placement_groups(self, GroupNames: Sequence[str] = ()) -> dict[str, Any]:  # noqa: N803
        """List the groups, all or those of these names."""
        names = [
            str(stored.outputs["name"])
            for stored in ResourceStore(self._resource_folder)
            if stored.token == PLACEMENT_GROUP
        ]
        return {
            "PlacementGroups": [{"GroupName": name} for name in names if not GroupNames or name in GroupNames]
        }


class _Paginator:
    def __init__(self, paginator: Any, operation: str) -> None:
        self._paginator = paginator
        self._operation = operation

    def paginate(self, **parameters: Any) -> "_Pages":
        return _Pages(self._paginator.paginate(**parameters), self._operation)


class _Pages:
    def __init__(self, pages: Any, operation: str) -> None:
        self._pages = pages
        self._operation = operation

    def __iter__(self) -> Iterator[Any]:
        with _gaps_as_not_found(self._operation):
            yield from self._pages

    def build_full_result(self) -> Any:
        with _gaps_as_not_found(self._operation):
            return self._pages.build_full_result()


@contextmanager
def _gaps_as_not_found(operation: str) -> Iterator[None]:
    """Answer "not found" where moto lacks the operation or fails at it."""
    try:
        yield
    except (NotImplementedError, KeyError) as error:  # moto's KeyError: no such resource
        response = {"Error": {"Code": "ResourceNotFoundException", "Message": f"moto: {error!r}"}}
        raise ClientError(response, operation) from error  # type: ignore[arg-type]
