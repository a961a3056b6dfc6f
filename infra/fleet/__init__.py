"""A fleet: existing clusters joined by MultiKueue."""

from infra.fleet.joined import FleetLinks

__all__ = ["FleetLinks"]
