"""The Kubernetes layer, the same for every target."""

from infra.platform.platform import Platform

__all__ = ["Platform"]
