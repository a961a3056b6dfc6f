"""Templates of claims: how pods of a team get devices of a fabric by Dynamic Resource Allocation."""

from __future__ import annotations

import pulumi

from infra import names
from infra.platform.base import Context, Layer, metadata
from infra.platform.fabric import claims_of
from infra.platform.namespaces import Namespaces


class Claims(Layer):
    """A template per fabric class and team: it serves the pods of its own namespace only."""

    def __init__(self, context: Context, namespaces: Namespaces, parent: pulumi.Resource) -> None:
        templates = claims_of(context.fabrics)
        super().__init__(context, "claims", {"templates": list(templates)}, parent)
        for team in context.stack.teams:
            namespace = names.team_namespace(team.name)
            for name, spec in templates.items():
                manifest = {
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "ResourceClaimTemplate",
                    "metadata": metadata(name, namespace),
                    "spec": spec,
                }
                self.add(manifest, [namespaces.by_name[namespace]])
        self.register_outputs({})
