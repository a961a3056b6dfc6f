"""Addresses of NFS servers in a stack file."""

import pytest
from pydantic import ValidationError

from infra.targets.onprem.stackfile.target import NfsSpec


@pytest.mark.parametrize("server", ["nfs.example.com", "10.0.0.5", "fd00::5", "::ffff:10.0.0.5"])
def test_an_nfs_server_has_a_name_or_an_address_of_either_version(server: str) -> None:
    """The NFS CSI driver writes the brackets around an IPv6 address."""
    assert NfsSpec(kind="nfs", server=server, share="/training").server == server


@pytest.mark.parametrize("server", ["[fd00::5]", "nfs.example.com:/training", "nfs.example.com:2049", ""])
def test_brackets_shares_and_ports_are_refused_in_an_nfs_server(server: str) -> None:
    with pytest.raises(ValidationError, match="server"):
        NfsSpec(kind="nfs", server=server, share="/training")
