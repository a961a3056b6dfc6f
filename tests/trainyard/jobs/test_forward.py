"""The port argument of `trainyard job forward`; traffic is tested in tests/e2e/test_member.py."""

import pytest

from infra.errors import InputError
from trainyard.jobs.forward import parsed


@pytest.mark.parametrize(
    ("written", "ports"), [("6006", (6006, 6006)), ("16006:6006", (16006, 6006)), ("0:8000", (0, 8000))]
)
def test_a_local_and_a_remote_port_are_read(written: str, ports: tuple[int, int]) -> None:
    assert parsed(written) == ports


@pytest.mark.parametrize(
    "written", ["", "http", "0", "65536", "1:2:3", "6006:", "-1", "6006:0", "70000:6006"]
)
def test_an_invalid_port_is_refused(written: str) -> None:
    with pytest.raises(InputError, match="PORT or LOCAL:PORT"):
        parsed(written)
