"""The `amd` setting of a target section: images for pools with AMD GPUs, the same on every target."""

from typing import Annotated

from pydantic import Field

from infra.stackfile.base import Positive, Spec, matching

Image = Annotated[
    str,
    matching(
        "image",
        r"[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)+(:[\w.-]+)?@sha256:[0-9a-f]{64}",
        "registry/name@sha256:<64 hex digits>",
        "name the registry, and the image by its digest",
    ),
]


class AmdSpec(Spec):
    """Images for pools with AMD GPUs. AMD's chart names images by `latest`, so a stack pins them."""

    training_image: Image = Field(description="image that jobs run in, built for ROCm")
    device_plugin: Image = Field(description="AMD's Kubernetes device plugin")
    node_labeller: Image = Field(description="AMD's node labeller")
    metrics_exporter: Image = Field(description="AMD's device metrics exporter")
    utils: Image = Field(description="AMD's utilities for the operator")
    render_gid: Positive | None = Field(
        default=None,
        description="number of the nodes' group `render`, to which /dev/kfd belongs (`getent group render`);"
        " default: a udev rule of the nodes opens the devices to all users",
    )
