"""A fleet: clusters that are there, joined by MultiKueue."""

from infra.fleet.joined import Joined

__all__ = ["Joined"]
