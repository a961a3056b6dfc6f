"""Azure's fake: its answers have the form that the SDK expects, and each resource has a unique ID."""

import base64

import yaml

from rehearsal import faults
from rehearsal.azure.subscription import CREDENTIALS, AzureSubscription
from rehearsal.cloud import RequestedResource
from rehearsal.leaks import SECRET

CLOUD = AzureSubscription("00000000-0000-0000-0000-000000000000")


def test_identities_are_answered_as_a_mapping() -> None:
    identity = {"type": "UserAssigned", "userAssignedIdentities": ["/subscriptions/a"]}
    account = RequestedResource(
        "azure-native:storage:StorageAccount", "s", {"accountName": "s", "identity": identity}
    )
    inputs = {"identity": {"type": "UserAssigned", "userAssignedIdentities": {"/subscriptions/a": {}}}}
    assert CLOUD.planned_outputs(account) == inputs
    assert CLOUD.create(account).outputs == {"name": "s", **inputs}
    assert CLOUD.planned_outputs(RequestedResource("azure-native:network:Subnet", "s", {})) == {}


def test_resources_of_one_name_in_several_parents_have_separate_ids() -> None:
    def made(endpoint: str) -> str:
        inputs = {
            "privateDnsZoneGroupName": "default",
            "privateEndpointName": endpoint,
            "resourceGroupName": "g",
        }
        return CLOUD.create(
            RequestedResource("azure-native:network:PrivateDnsZoneGroup", endpoint, inputs)
        ).id

    assert made("vault") != made("storage")
    assert made("vault").startswith("/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/g/")


def test_a_clusters_kubeconfig_has_a_token_that_a_program_must_not_export() -> None:
    answer = CLOUD.answer(CREDENTIALS, {"resourceName": "training"})
    config = yaml.safe_load(base64.b64decode(answer["kubeconfigs"][0]["value"]))
    assert config["clusters"][0]["cluster"]["server"].startswith("https://")
    assert config["users"][0]["user"]["token"].startswith(SECRET)
    assert CLOUD.answer("azure-native:other:call", {"a": 1}) == {"a": 1}


def test_a_pool_without_capacity_is_found_by_its_nodes_labels() -> None:
    assert faults._pools({"nodeLabels": {faults.POOL_LABEL: "spot"}}) == {"spot"}
