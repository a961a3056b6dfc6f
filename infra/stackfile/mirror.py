"""A `mirror` setting: a private registry that holds every image and chart."""

from typing import Annotated

from pydantic import Field

from infra.stackfile.base import Spec


class MirrorSpec(Spec):
    """A private registry with a copy of every image and chart."""

    registry: Annotated[str, Field(pattern=r"^[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)*$")] = Field(
        description="prefix of every image reference: `<registry>/nvcr.io/nvidia/driver:…`"
    )
    charts: Annotated[str, Field(pattern=r"^oci://[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)*$")] = Field(
        description="OCI URL below which the charts are published: oci://…"
    )
