"""What the user declares: typed, frozen, pure. `load` and `parse` are the way in."""

from infra.spec.load import load, parse
from infra.spec.stack import Stack

__all__ = ["Stack", "load", "parse"]
