from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from infra.stackfile.finding import Checks, Finding
from infra.stackfile.target import TargetSpec


class ToySpec(TargetSpec):
    """A cluster behind an address."""

    kind: Literal["toy"]
    address: str = Field(min_length=1, description="where the cluster is")


def the_address_has_a_scheme(target: ToySpec) -> Iterator[Finding]:
    """A validator of this target."""
    if not target.address.startswith("https://"):
        yield ("target", "address"), target.address, "an address with https://", "put it before"


CHECKS = Checks(__name__)
