"""Base class of each cloud's `Scope`: it names the stack's resources and gives them common Pulumi options."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from infra.common import names


@dataclass(frozen=True)
class CloudScope:
    """The stack's name, and the options that all resources share; each cloud adds its spec."""

    name: str
    kubernetes_version: str
    """Minor version of Kubernetes, as clouds name it: `1.35`."""
    provider: pulumi.ProviderResource
    parent: pulumi.Resource

    def named(self, role: str, longest: int | None = None) -> str:
        """Logical name of a resource: `<stack>-<role>`.

        `longest` is the cloud's limit where the engine makes the physical name from it.
        """
        name = f"{self.name}-{role}"
        return name if longest is None else names.fit_generated(name, longest)

    def options(
        self,
        *,
        depends_on: Sequence[pulumi.Resource] = (),
        protect: bool | None = None,
        retain_on_delete: bool | None = None,
        delete_before_replace: bool | None = None,
        ignore_changes: list[str] | None = None,
        custom_timeouts: pulumi.CustomTimeouts | None = None,
    ) -> pulumi.ResourceOptions:
        """Options of a resource: the one explicit provider, and the component as its parent."""
        return pulumi.ResourceOptions(
            parent=self.parent,
            provider=self.provider,
            depends_on=list(depends_on),
            protect=protect,
            retain_on_delete=retain_on_delete,
            delete_before_replace=delete_before_replace,
            ignore_changes=ignore_changes,
            custom_timeouts=custom_timeouts,
        )
