"""What the user declares: typed, frozen, pure. `load` and `parse` are the way in."""

from infra.spec.fleet import Fleet
from infra.spec.load import load, load_fleet, parse, parse_fleet
from infra.spec.stack import Stack

__all__ = ["Fleet", "Stack", "load", "load_fleet", "parse", "parse_fleet"]
