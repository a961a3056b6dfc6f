"""A fleet: clusters that exist, joined by MultiKueue."""

from infra.fleet.joined import FleetLinks

__all__ = ["FleetLinks"]
