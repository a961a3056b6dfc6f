"""What every part of a cloud's target needs to know to declare a resource."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi


@dataclass(frozen=True)
class CloudScope:
    """The stack's name, and the options that all resources share; each cloud adds its spec."""

    name: str
    kubernetes_version: str
    """As the clouds count: `1.35`."""
    provider: pulumi.ProviderResource
    parent: pulumi.Resource

    def named(self, role: str) -> str:
        """Logical name of a resource: `<stack>-<role>`."""
        return f"{self.name}-{role}"

    def options(
        self,
        *,
        depends_on: Sequence[pulumi.Resource] = (),
        protect: bool | None = None,
        retain_on_delete: bool | None = None,
        delete_before_replace: bool | None = None,
        ignore_changes: list[str] | None = None,
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
        )
