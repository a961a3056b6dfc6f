"""`Scope`: names, tags, region and resource options for every part of the Azure target.

`make_groups` makes the stack's resource groups.
"""

import hashlib
from dataclasses import dataclass

import pulumi
from pulumi_azure_native.resources.resource_group import ResourceGroup

from infra.targets.azure.stackfile.target import AzureSpec
from infra.targets.scope import CloudScope


@dataclass(frozen=True)
class Scope(CloudScope):
    """The scope of a stack on Azure. Names are fixed: no other stack shares its resource groups."""

    spec: AzureSpec

    @property
    def region(self) -> str:
        """Given to every resource that takes one."""
        return self.spec.region

    @property
    def tags(self) -> dict[str, str]:
        """Set on every resource with `tags`: the provider has no default tags."""
        return {"trainyard-stack": self.name, **self.spec.tags}

    @property
    def digest(self) -> str:
        """Eight characters that make names unique in all of Azure."""
        return hashlib.sha256(f"{self.spec.subscription}/{self.name}".encode()).hexdigest()[:8]

    def options_of_data(self) -> pulumi.ResourceOptions:
        """Options of what remains when the stack is destroyed."""
        return self.options(protect=self.spec.deletion_protection, retain_on_delete=True)


@dataclass(frozen=True)
class Groups:
    """Names of resource groups. Deleting a group deletes its content, so retained resources have another."""

    cluster: pulumi.Input[str]
    data: pulumi.Input[str]


def make_groups(scope: Scope) -> Groups:
    """Make the group that is deleted with the stack, and the retained one unless it exists."""
    cluster = _group(scope, "cluster", scope.options())
    if scope.spec.storage_group is not None:
        return Groups(cluster, cluster)
    return Groups(cluster, _group(scope, "data", scope.options_of_data()))


def _group(scope: Scope, role: str, options: pulumi.ResourceOptions) -> pulumi.Output[str]:
    made = ResourceGroup(
        scope.named(role),
        resource_group_name=scope.named(role),
        location=scope.region,
        tags=scope.tags,
        opts=options,
    )
    return made.name
