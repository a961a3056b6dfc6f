"""Exemptions from policies: parses them (policy, resources, owner, reason, last day), and decides which
resources they cover.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase


class PolicyConfigError(ValueError):
    """Configuration that cannot be understood; the run stops before anything is evaluated."""


_MIDNIGHT = " 00:00:00 +0000 UTC"
"""The engine's end of a date that is written without quotes."""
REQUIRED = ("policy", "resource", "owner", "reason", "expires")
FIELDS = (*REQUIRED, "property", "got")
"""The last two name the violation; an exemption without them covers all of the policy for its resources."""
NOBODY = frozenset({"me", "i", "myself", "us", "we", "you", "none", "nobody", "n/a", "tbd", "todo"})
SHORTEST_REASON = 8
NARROW_FROM = date(2027, 7, 1)
"""Day from which an exemption must name the violation."""


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
    path: str = ""
    """The violation's property (`property` in the configuration); empty for all."""
    got: str = ""

    @classmethod
    def parse(cls, data: object, where: str) -> "Exemption":
        """Raises `PolicyConfigError` naming the field that is missing, empty or malformed."""
        if not isinstance(data, Mapping):
            raise PolicyConfigError(f"{where}: got {data!r}; allowed: a mapping of {', '.join(FIELDS)}")
        for name in (*REQUIRED, *(name for name in FIELDS if name in data)):
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
        path = data.get("property", "")
        fields = {name: value for name, value in data.items() if name != "property"}
        return cls(**{**fields, "path": path, "expires": expires})

    @property
    def is_narrow(self) -> bool:
        """Whether it names the violation, and so covers no other value of the resource."""
        return bool(self.path and self.got)

    def covers(self, policy: str, resource: str, path: str, got: str) -> bool:
        """Whether it names the policy, the resource (`type::name`) and this violation, expired or not."""
        return (
            self.policy == policy
            and self.path in ("", path)
            and self.got in ("", got)
            and fnmatchcase(resource, self.resource)
        )

    def includes(self, other: "Exemption") -> bool:
        """Whether the other one is of the same policy, and names no more than this one; patterns as text."""
        same = other.policy == self.policy and fnmatchcase(other.resource, self.resource)
        return same and self.path in ("", other.path) and self.got in ("", other.got)

    def check_written(self, where: str) -> None:
        """Raises `PolicyConfigError` for a stack's exemption of everything, of nobody, or for no reason."""
        owner, reason = self.owner.strip(), self.reason.strip()
        for name, got, is_meant, allowed in (
            ("resource", self.resource, bool(re.search(r"\w", self.resource)), "a type and a name"),
            ("owner", owner, len(owner) > 1 and owner.lower() not in NOBODY, "a team or person to ask"),
            ("reason", reason, len(reason) >= SHORTEST_REASON, "a sentence that a reviewer understands"),
        ):
            if not is_meant:
                raise PolicyConfigError(f"{where}.{name}: got {got!r}; allowed: {allowed}")

    def expired(self, today: date) -> bool:
        return today > self.expires

    def __str__(self) -> str:
        return f"exempt until {self.expires} by {self.owner}: {self.reason}"


def parse_exemptions(data: object, where: str) -> tuple[Exemption, ...]:
    """Exemptions of a list of mappings; raises `PolicyConfigError` for the first that is malformed."""
    if not isinstance(data, list):
        raise PolicyConfigError(f"{where}: got {type(data).__name__}; allowed: a list of exemptions")
    return tuple(Exemption.parse(item, f"{where}[{index}]") for index, item in enumerate(data))
