"""The engine's gRPC stubs can be loaded beside Pulumi's SDK in any order."""

import subprocess
import sys


def run(code: str) -> str:
    return subprocess.check_output([sys.executable, "-c", code], text=True).strip()


def test_the_real_sdk_can_be_imported_after_them_and_shares_the_messages() -> None:
    code = (
        "from engine.stubs import provider_pb2; import pulumi;"
        "from pulumi.runtime.proto import provider_pb2 as real;"
        "print(pulumi.Output, real.CheckRequest is provider_pb2.CheckRequest)"
    )
    assert run(code) == "<class 'pulumi.output.Output'> True"


def test_the_stubs_can_be_imported_after_the_real_sdk() -> None:
    code = "import pulumi; from engine.stubs import provider_pb2; print(pulumi.Output, provider_pb2.__name__)"
    assert run(code) == "<class 'pulumi.output.Output'> pulumi.runtime.proto.provider_pb2"
