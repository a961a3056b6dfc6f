"""The stack file's `network` section: where the pods of teams may connect to."""

from typing import Annotated

from pydantic import Field, model_validator

from infra.stackfile.base import Cidr, Integer, Name, Spec, wrong

Port = Annotated[Integer, Field(ge=1, le=65535)]


class EgressSpec(Spec):
    """A destination outside of the team's namespace: a network, or the pods of another namespace."""

    name: Name = Field(description="name of the destination, such as tracker")
    cidr: Cidr | None = Field(
        default=None,
        description="address range of the destination; 0.0.0.0/0 is the public internet without private"
        " networks",
    )
    namespace: Name | None = Field(
        default=None, description="in place of `cidr`: namespace of a destination in the cluster"
    )
    ports: tuple[Port, ...] = Field(min_length=1, description="TCP ports of the destination")
    teams: tuple[Name, ...] = Field(default=(), description="teams that may connect; default: all")

    @model_validator(mode="after")
    def _has_one_destination(self) -> "EgressSpec":
        if (self.cidr is None) == (self.namespace is None):
            got = "both" if self.cidr else "neither"
            raise wrong("egress", f"cidr or namespace, here {got}", "write one of the two")
        return self


class NetworkSpec(Spec):
    """Network policy of team namespaces. Traffic to other destinations is denied."""

    egress: tuple[EgressSpec, ...] = Field(
        default=(), description="trackers, object stores and other services that jobs connect to"
    )
