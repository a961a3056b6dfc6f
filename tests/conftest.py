"""What every test starts from."""

from __future__ import annotations

import gc
import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from engine.paths import Paths
from tests.infra import golden_plans
from tests.tiers import pytest_ignore_collect, pytest_itemcollected

__all__ = ["pytest_ignore_collect", "pytest_itemcollected"]

# helm, kubectl and pulumi as `make test` has prepared them, in this clone and before any other.
os.environ["PATH"] = os.pathsep.join((str(Paths.from_environment().bin), os.environ["PATH"]))

# The tests' servers are on this host, which no proxy forwards to.
os.environ["NO_PROXY"] = os.environ["no_proxy"] = ",".join(
    (*filter(None, [os.environ.get("NO_PROXY", os.environ.get("no_proxy"))]), "127.0.0.1", "localhost")
)

# Time is not what a property is about, and two busy cores have little of it.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

# A shell's `make test &` has it ignored, which a child cannot undo: Ctrl-C is among what is tested.
signal.signal(signal.SIGINT, signal.default_int_handler)

# As in the engine's program: searched for garbage at Python's own pace, a plan takes twice as long.
gc.set_threshold(100_000)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the layers of golden plans once, when all workers have stored theirs."""
    if os.environ.get("UPDATE_GOLDEN") and not hasattr(session.config, "workerinput"):
        golden_plans.write()
