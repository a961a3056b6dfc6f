"""Exemptions from policies: parses them (policy, resources, owner, reason, last day), and decides which
resources they cover.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase


class PolicyConfigError(ValueError):
    """Configuration that cannot be understood; the run stops before anything is evaluated."""


_MIDNIGHT = " 00:00:00 +0000 UTC"
"""The engine's end of a date that is written without quotes."""
FIELDS = ("policy", "resource", "owner", "reason", "expires")


@dataclass(frozen=True)
class Exemption:
    """One agreed exception; it holds through the day on which it expires (UTC)."""

    policy: str
    """Full name of a policy; no pattern, so that no exemption covers all policies."""
    resource: str
    """Pattern of `type::name`, such as `kubernetes:core/v1:Pod::debug-*`."""
    owner: str
    reason: str
    expires: date

    @classmethod
    def parse(cls, data: object, where: str) -> Exemption:
        """Raises `PolicyConfigError` naming the field that is missing, empty or malformed."""
        if not isinstance(data, Mapping):
            raise PolicyConfigError(f"{where}: got {data!r}; allowed: a mapping of {', '.join(FIELDS)}")
        for name in FIELDS:
            if not isinstance(data.get(name), str) or not data[name].strip():
                raise PolicyConfigError(
                    f"{where}.{name}: got {data.get(name)!r}; allowed: a text that is not empty"
                )
        if unexpected := set(data) - set(FIELDS):
            raise PolicyConfigError(f"{where}: got {sorted(unexpected)}; allowed: {', '.join(FIELDS)}")
        try:
            expires = date.fromisoformat(data["expires"].removesuffix(_MIDNIGHT))
        except ValueError as error:
            raise PolicyConfigError(
                f"{where}.expires: got {data['expires']!r}; allowed: a date such as 2027-03-31"
            ) from error
        return cls(**{**data, "expires": expires})

    def covers(self, policy: str, resource_type: str, resource_name: str) -> bool:
        """Whether it names this policy and this resource, expired or not."""
        return policy == self.policy and fnmatchcase(f"{resource_type}::{resource_name}", self.resource)

    def includes(self, other: Exemption) -> bool:
        """Whether the other one is of the same policy, and its pattern, as text, matches this one's."""
        return other.policy == self.policy and fnmatchcase(other.resource, self.resource)

    def expired(self, today: date) -> bool:
        return today > self.expires

    def __str__(self) -> str:
        return f"exempt until {self.expires} by {self.owner}: {self.reason}"


def parse_exemptions(data: object, where: str) -> tuple[Exemption, ...]:
    """Exemptions of a list of mappings; raises `PolicyConfigError` for the first that is malformed."""
    if not isinstance(data, list):
        raise PolicyConfigError(f"{where}: got {type(data).__name__}; allowed: a list of exemptions")
    return tuple(Exemption.parse(item, f"{where}[{index}]") for index, item in enumerate(data))
