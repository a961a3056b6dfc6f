"""A fake API server over plain data: it answers as the real one for objects that it has, and for none."""

from collections.abc import Container, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from infra.clients.kubernetes import ApiError, Object
from infra.clients.kubernetes.api import Query

_NOTHING: Query = MappingProxyType({})


class FakeApi:
    """Lists by the path of their collection. A path in `forbidden` is refused."""

    def __init__(self, lists: Mapping[str, Iterable[Object]], forbidden: Iterable[str] = ()) -> None:
        self.lists = {path: list(found) for path, found in lists.items()}
        self.forbidden = set(forbidden)
        self.asked: list[tuple[str, str, Query]] = []
        """Method, path and query of each request."""

    def items(self, path: str, query: Query = _NOTHING, *, empty_on: Container[int] = ()) -> list[Any]:
        try:
            self._ask("GET", path, query)
            if path not in self.lists:
                raise ApiError(404, f"the server could not find {path}")
        except ApiError as error:
            if error.status not in empty_on:
                raise
            return []
        return self.lists[path]

    def get(self, path: str, query: Query = _NOTHING) -> Any:
        if (found := self.find(path, query)) is None:
            raise ApiError(404, f"{path} not found")
        return found

    def find(self, path: str, query: Query = _NOTHING) -> Any:
        self._ask("GET", path, query)
        collection, _, name = path.rpartition("/")
        return next((each for each in self.lists.get(collection, ()) if _name(each) == name), None)

    def create(self, path: str, body: Object, query: Query = _NOTHING) -> Any:
        self._ask("POST", path, query)
        if _name(body) in map(_name, self.lists.get(path, ())):
            raise ApiError(409, f'"{_name(body)}" already exists')
        if not query.get("dryRun"):
            self.lists.setdefault(path, []).append(body)
        return body

    def delete(self, path: str, query: Query = _NOTHING, body: Object | None = None) -> bool:
        """Of another `uid` it is refused with 409, as registry/generic/registry/store.go does."""
        self._ask("DELETE", path, query)
        if (found := self.find(path)) is None:
            return False
        uid = (body or {}).get("preconditions", {}).get("uid")
        if uid not in {None, found["metadata"].get("uid")}:
            raise ApiError(409, "the UID in the precondition does not match")
        self.lists[path.rpartition("/")[0]].remove(found)
        return True

    def _ask(self, method: str, path: str, query: Query) -> None:
        self.asked.append((method, path, query))
        if path in self.forbidden or f"{method} {path}" in self.forbidden:
            raise ApiError(403, f"{path} is forbidden")


def _name(item: Object) -> str:
    return str(item["metadata"]["name"])
