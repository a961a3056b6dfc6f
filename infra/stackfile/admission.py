"""The stack file's `admission` section: optional rules for the images of teams, and further controllers that
may create pods of admitted jobs.
"""

from typing import Annotated

from pydantic import Field

from infra.stackfile.base import Boolean, Spec, matching

Registry = Annotated[
    str,
    matching(
        "registry",
        r"[a-z0-9.-]+(:[0-9]+)?/([a-z0-9._-]+/)*",
        "the beginning of an image's name that ends with '/': registry.example.com/training/",
        "write the registry's host, the path if any, and '/' at the end",
    ),
]
Controller = Annotated[
    str,
    matching(
        "controller",
        r"[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9.]*[a-z0-9])?",
        "a service account, namespace/name, such as kuberay-operator/kuberay-operator",
        "name the account that the controller's pods run as",
    ),
]


class AdmissionSpec(Spec):
    """Admission rules for team namespaces, besides those that always apply."""

    registries: tuple[Registry, ...] = Field(
        default=(), description="prefixes of images that teams may run; default: any image"
    )
    digests: Boolean = Field(default=False, description="whether teams must name images by digest")
    controllers: tuple[Controller, ...] = Field(
        default=(),
        description="further service accounts (NAMESPACE/NAME) that may create pods of admitted jobs",
    )
