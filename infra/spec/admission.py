"""Admission: what the API server holds the teams of a stack to, beyond what it always does."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from infra.spec.base import Boolean, Spec, matching

Registry = Annotated[
    str,
    matching(
        "registry",
        r"[a-z0-9.-]+(:\d+)?/([a-z0-9._-]+/)*",
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
    """Rules of team namespaces that a stack may add to."""

    registries: tuple[Registry, ...] = Field(
        default=(), description="beginnings of images that teams may run; empty: any image"
    )
    digests: Boolean = Field(default=False, description="whether teams name their images by digest")
    controllers: tuple[Controller, ...] = Field(
        default=(), description="further controllers that make pods of jobs which a queue has admitted"
    )
