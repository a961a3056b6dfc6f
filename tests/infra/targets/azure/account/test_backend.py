"""The backend of a state on Azure, with a fake Resource Manager that refuses what Azure's refuses."""

import json
from typing import Any

import httpx
import pytest

from infra.clients.azure import AzureClient, AzureRefusedError
from infra.errors import InputError
from infra.stackfile import load
from infra.targets.azure.account import backend
from infra.targets.azure.stackfile.target import AzureSpec
from infra.targets.backend import StateLocation
from tests.infra.plan import stack_file

pytestmark = pytest.mark.clouds

LOCATION = StateLocation("examplestate", "westeurope", {"owner": "ml-platform"})


class FakeResourceManager:
    """A fake of Azure Resource Manager: parents come first, accounts take time, and names are unique.

    Errors are those of the REST reference: "Common error codes", `StorageAccountAlreadyTaken` of Storage.
    """

    def __init__(self) -> None:
        self.things: dict[str, Any] = {}
        self.taken: set[str] = set()
        self._under_way: dict[str, Any] = {}

    def answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if request.method == "GET":
            return self._read(path)
        body = json.loads(request.content)
        parent = path.rpartition("/providers/")[0] if path.count("/") == 8 else path.rsplit("/", 2)[0]
        parents = {each for each in self.things if each == parent.removesuffix("/blobServices")}
        if path.count("/") > 4 and not parents and not path.endswith("/default"):
            return _error(404, "ParentResourceNotFound", f"{parent} could not be found")
        if path.rpartition("/")[2] in self.taken:
            return _error(409, "StorageAccountAlreadyTaken", "The storage account named is already taken.")
        if "/storageAccounts/" in path and path.count("/") == 8 and path not in self.things:
            self._under_way[path] = body
            return httpx.Response(202, headers={"Location": str(request.url), "Retry-After": "0"})
        self.things[path] = {**body, "id": path}
        return httpx.Response(200, json=self.things[path])

    def _read(self, path: str) -> httpx.Response:
        if path in self._under_way:
            self.things[path] = {**self._under_way.pop(path), "id": path}
            return httpx.Response(202, headers={"Retry-After": "0"})
        if path not in self.things:
            return _error(404, "ResourceNotFound", "not found")
        return httpx.Response(200, json=self.things[path])


def _error(status: int, code: str, message: str) -> httpx.Response:
    return httpx.Response(status, json={"error": {"code": code, "message": f"{code}: {message}"}})


@pytest.fixture
def spec() -> AzureSpec:
    spec = load(stack_file("azure")).target
    assert isinstance(spec, AzureSpec)
    return spec


def asked(manager: FakeResourceManager) -> AzureClient:
    return AzureClient("token", httpx.MockTransport(manager.answer))


def test_the_state_is_private_versioned_and_its_secrets_have_a_key(spec: AzureSpec) -> None:
    manager = FakeResourceManager()
    made = backend.make(LOCATION, spec, asked(manager))
    assert made.url == "azblob://pulumi?storage_account=examplestate"
    assert made.secrets_provider == "azurekeyvault://examplestate.vault.azure.net/keys/state"
    account = next(
        each for path, each in manager.things.items() if path.endswith("storageAccounts/examplestate")
    )
    assert account["properties"]["allowSharedKeyAccess"] is False
    assert account["properties"]["allowBlobPublicAccess"] is False
    assert account["sku"]["name"] == "Standard_ZRS", "in its region, in more than one zone"
    service = next(each for path, each in manager.things.items() if path.endswith("blobServices/default"))
    assert service["properties"]["isVersioningEnabled"] is True
    vault = next(each for path, each in manager.things.items() if path.endswith("vaults/examplestate"))
    assert vault["properties"]["enablePurgeProtection"] is True
    assert set(made.rights) <= manager.things.keys(), "rights are to what is there"


def test_a_second_time_changes_nothing(spec: AzureSpec) -> None:
    manager = FakeResourceManager()
    first = backend.make(LOCATION, spec, asked(manager))
    before = json.dumps(manager.things, sort_keys=True)
    assert backend.make(LOCATION, spec, asked(manager)) == first
    assert json.dumps(manager.things, sort_keys=True) == before


def test_a_name_of_another_account_is_reported_with_azures_message(spec: AzureSpec) -> None:
    manager = FakeResourceManager()
    manager.taken.add("examplestate")
    with pytest.raises(AzureRefusedError, match="StorageAccountAlreadyTaken"):
        backend.make(LOCATION, spec, asked(manager))


def test_an_account_in_another_region_is_refused(spec: AzureSpec) -> None:
    manager = FakeResourceManager()
    backend.make(LOCATION, spec, asked(manager))
    with pytest.raises(InputError, match="is in westeurope"):
        backend.make(StateLocation("examplestate", "northeurope", {}), spec, asked(manager))


@pytest.mark.parametrize("name", ["example-state", "Example", "ab", "1state", "a" * 25])
def test_an_invalid_account_name_is_refused_before_anything_is_created(name: str, spec: AzureSpec) -> None:
    manager = FakeResourceManager()
    with pytest.raises(InputError, match="3 to 24 lower-case"):
        backend.make(StateLocation(name, "westeurope", {}), spec, asked(manager))
    assert manager.things == {}
