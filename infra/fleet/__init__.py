"""The program of a fleet: joins existing clusters by MultiKueue."""

from infra.fleet.joined import FleetLinks

__all__ = ["FleetLinks"]
