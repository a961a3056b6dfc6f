"""Checks that a command has the privileges that the embedded cluster needs."""

import os
import platform
from collections.abc import Iterator
from pathlib import Path

from infra.errors import HostError, Problem

CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_CHROOT": 18, "CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21}
"""Name → bit, as in linux/capability.h."""


def check_privileges() -> None:
    """Raise HostError when we may not even look into the cluster."""
    if problems := list(missing_privileges()):
        raise HostError(problems)


def missing_privileges() -> Iterator[Problem]:
    """Yield missing privileges, or that this is no Linux."""
    if (system := platform.system()) != "Linux":
        fix = "use a Linux virtual machine (Lima, Colima, WSL 2), or a stack of another target"
        yield Problem("system", system, "Linux, whose namespaces are the embedded cluster's nodes", fix)
        return
    if os.geteuid() != 0:
        needs = "root: namespaces, mounts and cgroups of the nodes need it"
        yield Problem("user", f"uid {os.geteuid()}", needs, "run the command again with sudo")
        return
    status = Path("/proc/self/status").read_text()
    effective = int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff")), 16)
    for name, bit in CAPABILITIES.items():
        if not effective & (1 << bit):
            fix = f"run where root has it, such as a virtual machine, or a container with --cap-add={name}"
            yield Problem("capabilities", f"{name} is missing", name, fix)
