"""Imports the engine's gRPC stubs from the Pulumi SDK without importing the SDK itself.

`import pulumi` runs the whole SDK (0.6 s of CPU); a plugin needs the generated protocol only (0.2 s), and
the engine starts two plugins of ours at each operation. So the stubs are imported under bare parent packages,
which are taken away again, so that a later `import pulumi` in the same process gets the real SDK.
"""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

MAX_MESSAGE_BYTES = 400 * 1024 * 1024
"""The engine's own limit of a gRPC message, as in the SDK's channel options."""

CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
)


@contextmanager
def _bare_parents() -> Iterator[None]:
    """Replace `pulumi` and `pulumi.runtime` by empty packages while the stubs are imported."""
    if "pulumi" in sys.modules:
        yield
        return
    spec = importlib.util.find_spec("pulumi")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the Pulumi SDK is not installed in this environment", name="pulumi")
    folder = Path(spec.origin).parent
    for name, path in (("pulumi", folder), ("pulumi.runtime", folder / "runtime")):
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__path__ = [str(path)]
    try:
        yield
    finally:
        for name in [each for each in sys.modules if each.partition(".")[0] == "pulumi"]:
            del sys.modules[name]


def _load(*names: str) -> list[Any]:
    with _bare_parents():
        return [importlib.import_module(f"pulumi.runtime.proto.{name}") for name in names]


if TYPE_CHECKING:
    from pulumi.runtime.proto import (
        engine_pb2,
        engine_pb2_grpc,
        language_pb2,
        language_pb2_grpc,
        plugin_pb2,
        provider_pb2,
        provider_pb2_grpc,
        status_pb2,
    )
else:
    engine_pb2, engine_pb2_grpc = _load("engine_pb2", "engine_pb2_grpc")
    language_pb2, language_pb2_grpc = _load("language_pb2", "language_pb2_grpc")
    provider_pb2, provider_pb2_grpc = _load("provider_pb2", "provider_pb2_grpc")
    plugin_pb2, status_pb2 = _load("plugin_pb2", "status_pb2")

__all__ = [
    "CHANNEL_OPTIONS",
    "engine_pb2",
    "engine_pb2_grpc",
    "language_pb2",
    "language_pb2_grpc",
    "plugin_pb2",
    "provider_pb2",
    "provider_pb2_grpc",
    "status_pb2",
]
