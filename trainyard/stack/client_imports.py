"""Import hook that stubs or defers modules that the Kubernetes Python client imports and most commands do not
need, for a faster start.

- `kubernetes.config.kube_config` (37.0) imports Google's and OAuth's packages for the `auth-provider` of a
  kubeconfig. Kubernetes 1.26 removed that, and `infra/targets/kubeconfig.py` refuses it.
- `kubernetes.stream.ws_client` imports `requests` for one function, which only a proxy needs.
- `kubernetes` imports all its parts; those that are named here run when they are first used.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.abc import Loader  # imports 10 ms of modules

_DEFERRED = frozenset(
    f"kubernetes.{part}" for part in ("dynamic", "informer", "leaderelection", "utils", "watch")
)


def install() -> None:
    """Install the hook. It hides these packages from the client alone: other importers find them."""
    sys.meta_path.insert(0, _Finder())


class _Finder:
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _DEFERRED and fullname not in _SUBSTITUTES:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            loader, deferred = spec.loader, fullname in _DEFERRED
            made: Any = LazyLoader(loader) if deferred else _Without(loader, _SUBSTITUTES[fullname]())
            spec.loader = made
        return spec


class _Without:
    """Executes a module with substitutes for some of its imports; None: the import fails."""

    def __init__(self, loader: Loader, others: Mapping[str, ModuleType | None]) -> None:
        self._loader, self._others = loader, others

    def create_module(self, _spec: ModuleSpec) -> None:
        """Let Python create it in its usual way."""

    def exec_module(self, module: ModuleType) -> None:
        known = {name: sys.modules[name] for name in self._others if name in sys.modules}
        sys.modules.update({**self._others, **known})  # type: ignore[dict-item]
        try:
            self._loader.exec_module(module)
        finally:
            for name in self._others:
                if name not in known:
                    del sys.modules[name]


def _module(name: str, **content: object) -> ModuleType:
    made = ModuleType(name)
    made.__dict__.update(content)
    return made


def _without_sign_in() -> dict[str, ModuleType | None]:
    """The client works without `google.auth` if importing it fails."""
    oauth2 = _module("oauthlib.oauth2")
    return {
        "google.auth": None,
        "oauthlib": _module("oauthlib", __path__=[], oauth2=oauth2),
        "oauthlib.oauth2": oauth2,
        "requests_oauthlib": _module("requests_oauthlib", OAuth2Session=None),
    }


def _without_requests() -> dict[str, ModuleType | None]:
    utils = _module("requests.utils", should_bypass_proxies=_should_bypass_proxies)
    return {"requests": _module("requests", __path__=[], utils=utils), "requests.utils": utils}


def _should_bypass_proxies(url: str, no_proxy: str | None) -> bool:
    from requests.utils import should_bypass_proxies

    return bool(should_bypass_proxies(url, no_proxy))


_SUBSTITUTES = {
    "kubernetes.config.kube_config": _without_sign_in,
    "kubernetes.stream.ws_client": _without_requests,
}
"""Module → factory of the substitutes for modules that it imports."""
