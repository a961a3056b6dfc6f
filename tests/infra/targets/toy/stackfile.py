from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from infra.stackfile.finding import Checks, Finding
from infra.stackfile.provider import ProviderSpec


class ToySpec(ProviderSpec):
    """A cluster behind an address."""

    kind: Literal["toy"]
    address: str = Field(min_length=1, description="where the cluster is")


def the_address_has_a_scheme(provider: ToySpec) -> Iterator[Finding]:
    """A validator of this target."""
    if not provider.address.startswith("https://"):
        yield ("provider", "address"), provider.address, "an address with https://", "put it before"


CHECKS = Checks(__name__)
