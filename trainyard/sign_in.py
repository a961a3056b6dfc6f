"""Prevents imports of Kubernetes' client that only serve authentication methods it no longer needs.

`kubernetes.config.kube_config` (37.0) imports Google's and OAuth's packages for the `auth-provider` of a
kubeconfig. Kubernetes 1.26 removed that, and `infra/targets/kubeconfig.py` refuses it; the packages are a
fifth of the CPU time in which a command starts.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_IMPORTER = "kubernetes.config.kube_config"
_LEFT_OUT = ("google.auth", "oauthlib", "oauthlib.oauth2", "requests_oauthlib")


def leave_out() -> None:
    """Let the client, once it is imported, find nothing of them; all others find them as ever."""
    sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _IMPORTER:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _WithoutSignIn(spec.loader)
        return spec


class _WithoutSignIn(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def exec_module(self, module: ModuleType) -> None:
        known = {name: sys.modules[name] for name in _LEFT_OUT if name in sys.modules}
        empty = {name: ModuleType(name) for name in _LEFT_OUT}
        empty["oauthlib"].__dict__.update(__path__=[], oauth2=empty["oauthlib.oauth2"])
        empty["requests_oauthlib"].__dict__.update(OAuth2Session=None)
        # The client continues without Google's where it cannot be imported.
        sys.modules.update({**empty, "google.auth": None, **known})  # type: ignore[dict-item]
        try:
            self._loader.exec_module(module)
        finally:
            for name in _LEFT_OUT:
                if name not in known:
                    del sys.modules[name]
