"""Fake of the resource types that resize node groups: the group must exist in the fake cloud before it is
resized.
"""

from pathlib import Path

from rehearsal.cloud import CreatedResource, Own, RefusedError, RequestedResource
from rehearsal.store import ResourceStore


class Filled(Own):
    """Fake of our own types: a node group size needs its node group in the fake cloud."""

    def __init__(self, token: str, group: str, folder: Path) -> None:
        """`group` is the input with the group's ID; `folder` has the resources of the cloud's fake."""
        super().__init__()
        self._token, self._group, self._folder = token, group, folder

    def create(self, resource: RequestedResource) -> CreatedResource:
        """Take the size, and wait for no node. Raises `RefusedError` for a group that does not exist."""
        if resource.token == self._token:
            wanted = resource.inputs[self._group]
            if wanted not in {stored.id for stored in ResourceStore(self._folder)}:
                raise RefusedError(f"404: {wanted} does not exist")
        return super().create(resource)
