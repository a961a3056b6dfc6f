"""Table of the plugin's resource types, each imported when the engine first asks for it.

The types of the embedded cluster are in `local`, which a stack in a cloud never imports.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module

from engine.provider.resource import ResourceHandler

RESOURCE_TYPES: Mapping[str, str] = {
    "trainyard:aws:NodeGroupSize": "engine.provider.node_group_size:NodeGroupSize",
    "trainyard:azure:AgentPoolSize": "engine.provider.agent_pool_size:AgentPoolSize",
    "trainyard:gcp:NodePoolSize": "engine.provider.node_pool_size:NodePoolSize",
    "trainyard:kubernetes:ClusterClaim": "engine.provider.cluster_claim:ClusterClaim",
    "trainyard:kubernetes:CustomResourceDefinitions": (
        "engine.provider.custom_resource_definitions:CustomResourceDefinitions"
    ),
    "trainyard:kubernetes:RotatedKubeconfig": "engine.provider.rotated_kubeconfig:RotatedKubeconfig",
    "trainyard:kubernetes:ServingWebhooks": "engine.provider.serving_webhooks:ServingWebhooks",
    "trainyard:local:EmbeddedCluster": "local.resources.embedded_cluster:EmbeddedCluster",
    "trainyard:local:ReadyNodes": "local.resources.ready_nodes:ReadyNodes",
}
"""Type token → `module:Class`."""


@cache
def load(reference: str) -> ResourceHandler:
    """Import `module:Class` and return the one instance of it."""
    module, _, name = reference.partition(":")
    kind: type[ResourceHandler] = getattr(import_module(module), name)
    return kind()
