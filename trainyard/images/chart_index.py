"""Looks up the digest of a chart version in the index of its Helm repository."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import urllib3
import yaml

from trainyard.images.registry import RETRIES, NoChartError

_TIMEOUT_SECONDS = 30.0


class _Sought(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def repository(self) -> str: ...


@dataclass(frozen=True)
class Indexes:
    """Indexes, each read once: NVIDIA's has megabytes."""

    http: urllib3.PoolManager = field(default_factory=urllib3.PoolManager, repr=False)
    _read: dict[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)

    def digest(self, chart: _Sought) -> str:
        """Return the SHA-256 of a chart's archive; empty if the index has none. Raises NoChartError."""
        versions = self._entries(chart.repository).get(chart.name) or ()
        for each in versions:
            if each.get("version") == chart.version:
                return str(each.get("digest") or "").removeprefix("sha256:")
        raise NoChartError("missing")

    def _entries(self, repository: str) -> Mapping[str, Any]:
        if repository not in self._read:
            self._read[repository] = self._asked(f"{repository.rstrip('/')}/index.yaml")
        return self._read[repository]

    def _asked(self, url: str) -> Mapping[str, Any]:
        try:
            answer = self.http.request("GET", url, timeout=_TIMEOUT_SECONDS, retries=RETRIES)
        except urllib3.exceptions.HTTPError as error:
            raise NoChartError(f"{url} cannot be reached ({type(error).__name__})") from error
        if answer.status != 200:
            raise NoChartError(f"{url}: status {answer.status}")
        try:
            index = yaml.load(answer.data, Loader=yaml.CSafeLoader)
        except yaml.YAMLError as error:
            raise NoChartError(f"{url} is not a chart index") from error
        entries: Mapping[str, Any] = index.get("entries", {}) if isinstance(index, dict) else {}
        return entries
