"""Networks: what pods of teams may connect to, beside each other and what the target gives them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from infra.spec.base import Cidr, Integer, Name, Spec, wrong

Port = Annotated[Integer, Field(ge=1, le=65535)]


class EgressSpec(Spec):
    """A destination outside of the team: a network, or the pods of another namespace."""

    name: Name = Field(description="what is there, such as a tracker")
    cidr: Cidr | None = Field(
        default=None, description="its addresses; 0.0.0.0/0 is the internet, never a private network"
    )
    namespace: Name | None = Field(default=None, description="or its namespace, where it runs in the cluster")
    ports: tuple[Port, ...] = Field(min_length=1, description="its TCP ports")
    teams: tuple[Name, ...] = Field(default=(), description="teams that may connect; empty: all")

    @model_validator(mode="after")
    def _has_one_destination(self) -> EgressSpec:
        if (self.cidr is None) == (self.namespace is None):
            got = "both" if self.cidr else "neither"
            raise wrong("egress", f"cidr or namespace, here {got}", "write the one that says where it is")
        return self


class NetworkSpec(Spec):
    """The network of teams: closed, but for what stands here."""

    egress: tuple[EgressSpec, ...] = Field(
        default=(), description="trackers, stores and other services that jobs connect to"
    )
