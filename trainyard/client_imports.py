"""Import hook that skips or defers modules which Kubernetes' client imports and our commands never use, for a
faster start.

- `kubernetes.config.kube_config` (37.0) imports Google's and OAuth's packages for the `auth-provider` of a
  kubeconfig. Kubernetes 1.26 removed that, and `infra/targets/kubeconfig.py` refuses it.
- `kubernetes.stream.ws_client` imports `requests` for one function, which only a proxy needs.
- `kubernetes` imports all its parts; those that are named here run when they are first used.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType

_LATER = frozenset(
    f"kubernetes.{part}" for part in ("dynamic", "informer", "leaderelection", "utils", "watch")
)


def skip_optional() -> None:
    """Make them missing for the client alone, which then does without; other importers find them."""
    sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _LATER and fullname not in _IN_PLACE:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            later = fullname in _LATER
            spec.loader = LazyLoader(spec.loader) if later else _Without(spec.loader, _IN_PLACE[fullname]())
        return spec


class _Without(Loader):
    """Executes a module that finds others in place of some that it imports; None: it finds none."""

    def __init__(self, loader: Loader, others: Mapping[str, ModuleType | None]) -> None:
        self._loader, self._others = loader, others

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
    """The client continues without Google's where it cannot be imported."""
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


_IN_PLACE = {
    "kubernetes.config.kube_config": _without_sign_in,
    "kubernetes.stream.ws_client": _without_requests,
}
"""Module that executes → finder of substitutes for modules that it imports."""
