"""Environment, signals and settings that all tests share."""

import gc
import os
import signal

from hypothesis import HealthCheck, settings

from engine.paths import Paths
from tests.tiers import pytest_ignore_collect, pytest_itemcollected

__all__ = ["pytest_ignore_collect", "pytest_itemcollected"]

# The helm, kubectl and pulumi of this clone, which `make test` has prepared, precede those of the host.
os.environ["PATH"] = os.pathsep.join((str(Paths.from_environment().bin), os.environ["PATH"]))

# The tests' servers are on loopback, which must bypass proxies.
os.environ["NO_PROXY"] = os.environ["no_proxy"] = ",".join(
    (*filter(None, [os.environ.get("NO_PROXY", os.environ.get("no_proxy"))]), "127.0.0.1", "localhost")
)

# Properties have no deadline, since a busy host is slow.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

# A shell's `make test &` ignores SIGINT, which children inherit, but tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# As in the engine's program: with Python's default threshold of collections, a plan takes twice as long.
gc.set_threshold(100_000)
