"""Finds a stack's resources in an Azure subscription, by path; role assignments by principal and role."""

import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pulumi_azure_native
import pytest

from infra.clients.azure import AzureClient
from infra.errors import HostError, TrainyardError
from infra.targets.azure.account.find import AzureFinder
from infra.targets.finder import UNKNOWN, lookups
from rehearsal.azure.subscription import AzureAnswers, AzureSubscription
from rehearsal.cloud import RequestedResource
from rehearsal.store import ResourceStore, StoredResource
from rehearsal.tables import table

SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/training-cluster"
VNET = {
    "resourceGroupName": "training-cluster",
    "virtualNetworkName": "training",
    "tags": {"trainyard-stack": "training"},
}
ASSIGNMENT = "azure-native:authorization:RoleAssignment"
RIGHT = {
    "scope": f"{GROUP}/providers/Microsoft.KeyVault/vaults/v/keys/data",
    "principalId": "11111111-1111-1111-1111-111111111111",
    "roleDefinitionId": f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Authorization/roleDefinitions/r1",
}


def made(folder: Path, token: str, name: str, inputs: Mapping[str, Any]) -> str:
    """Create a resource in a fake; return its ID."""
    cloud = AzureSubscription(SUBSCRIPTION)
    key = cloud.autoname(token)
    named = {**inputs, **({key: str(uuid.uuid4())} if key else {})}
    identity = cloud.create(RequestedResource(token, name, named)).id
    ResourceStore(folder).put(
        StoredResource(f"urn:pulumi:s::p::{token}::{name}", identity, dict(named), dict(named))
    )
    return identity


@pytest.fixture
def finder(tmp_path: Path) -> AzureFinder:
    return AzureFinder("training", SUBSCRIPTION, AzureAnswers(tmp_path, SUBSCRIPTION))


def test_a_resource_is_found_by_its_path(tmp_path: Path, finder: AzureFinder) -> None:
    token = "azure-native:network:VirtualNetwork"
    assert finder.find_announced(token, "training-vnet", VNET) is None
    made(tmp_path, token, "training-vnet", VNET)
    path = f"{GROUP}/providers/Microsoft.Network/virtualNetworks/training"
    assert finder.find_announced(token, "training-vnet", VNET) == (path, {})
    assert finder.find_begun(token, "training-vnet", VNET) == path
    assert finder.find_announced(token, "training-vnet", {**VNET, "resourceGroupName": UNKNOWN}) is None


def test_a_resource_with_another_stacks_tag_is_not_found(tmp_path: Path) -> None:
    made(tmp_path, "azure-native:network:VirtualNetwork", "training-vnet", VNET)
    other = AzureFinder("other", SUBSCRIPTION, AzureAnswers(tmp_path, SUBSCRIPTION))
    asked = {**VNET, "tags": {"trainyard-stack": "other"}}
    assert other.find_announced("azure-native:network:VirtualNetwork", "other-vnet", asked) is None


def test_a_role_assignment_is_found_by_its_principal(tmp_path: Path, finder: AzureFinder) -> None:
    announced = {**RIGHT, "roleAssignmentName": "data-key-0000000"}
    assert finder.find_announced(ASSIGNMENT, "data-key", announced) is None
    made(tmp_path, ASSIGNMENT, "another", {**RIGHT, "roleDefinitionId": "/r2"})
    path = made(tmp_path, ASSIGNMENT, "data-key", RIGHT)
    found = (path, {"roleAssignmentName": path.rpartition("/")[2]})
    assert finder.find_announced(ASSIGNMENT, "data-key", announced) == found
    shouted = {**announced, "scope": RIGHT["scope"].replace("training", "Training")}
    assert finder.find_announced(ASSIGNMENT, "data-key", {**shouted, "principalId": "2"}) is None
    assert finder.find_announced(ASSIGNMENT, "data-key", {**announced, "principalId": UNKNOWN}) is None


def test_further_pages_are_read_and_case_is_ignored() -> None:
    right = {"id": "/a", "name": "a", "properties": {**RIGHT, "scope": RIGHT["scope"].upper()}}
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        if "page" in request.url.params:
            return httpx.Response(200, json={"value": [right]})
        return httpx.Response(200, json={"value": [], "nextLink": f"{request.url}&page=2"})

    finder = AzureFinder("training", SUBSCRIPTION, AzureClient("t", httpx.MockTransport(answer)).find)
    assert finder.find_begun(ASSIGNMENT, "data-key", RIGHT) == "/a"
    first, second = asked
    assert first.startswith("https://management.azure.com/subscriptions/")
    assert "api-version=2022-04-01" in first
    assert "principalId" in first
    assert second == f"{first}&page=2"


def test_a_missing_resource_is_no_error_and_a_missing_right_is_one() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers["Authorization"] == "Bearer t"
        if request.url.path.endswith("/none"):
            return httpx.Response(404, json={"error": {"message": "ResourceGroupNotFound"}})
        return httpx.Response(403, json={"error": {"message": "does not have authorization"}})

    azure = AzureClient("t", httpx.MockTransport(answer))
    assert azure.find("/subscriptions/a/none", {"api-version": "1"}) is None
    with pytest.raises(TrainyardError, match="403: does not have authorization"):
        azure.find("/subscriptions/a/closed", {"api-version": "1"})
    assert "Bearer" not in repr(azure)
    assert "'t'" not in repr(azure)


def test_the_token_comes_from_azures_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match="az login"):
        AzureClient.of_user(SUBSCRIPTION)
    program = tmp_path / "az"
    program.write_text(f'#!/bin/sh\n[ "$6" = {SUBSCRIPTION} ] && echo \'{{"accessToken": "t"}}\'\n')
    program.chmod(0o755)
    assert AzureClient.of_user(SUBSCRIPTION).token == "t"


LOOKUPS = lookups("infra.targets.azure.account")


def test_every_type_of_the_stacks_can_be_looked_up() -> None:
    assert table("rehearsal.azure", "replacements").keys() <= LOOKUPS.keys()


@pytest.mark.parametrize("token", LOOKUPS)
def test_requests_have_the_api_version_of_the_sdk(token: str) -> None:
    _, module, kind = token.split(":")
    file = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", kind).lower()
    source = (Path(pulumi_azure_native.__file__).parent / module / f"{file}.py").read_text()
    assert f"Uses Azure REST API version {LOOKUPS[token]['version']}." in source


def test_a_finder_with_a_wrong_path_finds_nothing(
    tmp_path: Path, finder: AzureFinder, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = "azure-native:network:VirtualNetwork"
    made(tmp_path, token, "training-vnet", VNET)
    assert finder.find_begun(token, "training-vnet", VNET)
    wrong = {**LOOKUPS[token], "at": LOOKUPS[token]["at"].replace("virtualNetworks", "networks")}
    monkeypatch.setitem(LOOKUPS, token, wrong)
    assert finder.find_begun(token, "training-vnet", VNET) is None


def test_a_request_without_a_version_is_refused_as_azure_does(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="MissingApiVersionParameter"):
        AzureAnswers(tmp_path, SUBSCRIPTION)(GROUP, {})
