"""A fleet: clusters that are there, joined by MultiKueue."""

from infra.fleet.joined import FleetLinks

__all__ = ["FleetLinks"]
