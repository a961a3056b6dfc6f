"""ResourceClaimTemplates and ComputeDomains (DRA) of each fabric, in every team's namespace."""

from collections.abc import Sequence

import pulumi

from infra.common import names
from infra.platform.base import Layer, PlatformContext
from infra.platform.fabric import resource_claims_of
from infra.platform.namespaces import Namespaces


class ResourceClaims(Layer):
    """ResourceClaimTemplates per claim, fabric class and team: a template serves pods of one namespace only.

    NVIDIA's driver makes that of an NVLink domain, in which a team's GPUs reach no other team's.
    """

    def __init__(
        self,
        context: PlatformContext,
        namespaces: Namespaces,
        drivers: Sequence[pulumi.Resource],
        parent: pulumi.Resource,
    ) -> None:
        super().__init__(context, "claims", {"fabrics": context.fabrics}, parent)
        for team in context.stack.teams:
            namespace = names.team_namespace(team.name)
            for manifest in resource_claims_of(context.fabrics, namespace):
                self.add(manifest, [namespaces.by_name[namespace], *drivers])
        self.register_outputs({})
