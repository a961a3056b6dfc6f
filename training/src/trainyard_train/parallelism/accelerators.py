"""Checks that the GPUs which a pod asked for can be used, and names the reason where they cannot
(docs/jobs.md, "On the GPUs, or not at all").

The training runtimes set RESOURCE and PER_NODE; where they are not set, as for the simulated GPUs of the
embedded cluster, nothing is checked.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from trainyard_train.config_base import ConfigError

RESOURCE: Final = "TRAINYARD_ACCELERATOR"
"""Variable with the resource by which the pod asked for GPUs; any other value: nothing is checked."""
PER_NODE: Final = "TRAINYARD_ACCELERATORS_PER_NODE"
NVIDIA: Final = "nvidia.com/gpu"
AMD: Final = "amd.com/gpu"
OLDEST_DRIVERS: Final[Mapping[int, int]] = {12: 525, 13: 580}
"""CUDA's major version → oldest branch of NVIDIA's driver that runs all of its minor versions (NVIDIA, CUDA
Compatibility, Minor Version Compatibility)."""
GKE_DRIVER: Final = Path("/usr/local/nvidia/lib64")
"""Folder into which GKE mounts the driver's libraries, and which no loader searches by itself."""
KFD, RENDER_NODES = Path("/dev/kfd"), Path("/dev/dri")
_HIDING: Final = {
    NVIDIA: ("CUDA_VISIBLE_DEVICES",),
    AMD: ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
}
_LIBRARY: Final = "libcuda.so.1"
_CUDA_ERRORS: Final = {
    34: "the library is a stub for linking, which comes before the driver's: remove it from LD_LIBRARY_PATH",
    100: "the container has no device file of a GPU: compare the pod's limits with the node's device plugin",
    802: "the node's NVSwitches are not set up: is nvidia-fabricmanager running there?",
    803: "the library and the node's kernel module are of different drivers: restart the node; if the image"
    " has a libcuda of its own (cuda-compat), remove it",
}
"""Error of cuInit → what it means in a pod (CUDA driver API, CUresult)."""


def are_asked_for(environment: Mapping[str, str]) -> bool:
    """Whether the pod has asked for GPUs, which ranks must then use."""
    return environment.get(RESOURCE) in _HIDING


def check(environment: Mapping[str, str]) -> None:
    """Return if PyTorch can use as many GPUs as the pod has asked for, or if it has asked for none.

    It initializes the driver: a process that forks ranks calls it in a child.

    Raises:
        ConfigError: it can use fewer; the message has the reason.
    """
    if not are_asked_for(environment):
        return
    import torch

    resource = environment[RESOURCE]
    wanted = _wanted(environment, resource)
    usable = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if usable >= wanted:
        return
    reason = _hidden(environment, resource) or (_nvidia if resource == NVIDIA else _amd)()
    raise ConfigError(
        [
            f"{resource}: got {usable} GPUs that PyTorch can use; allowed: {wanted}, which the pod asked for:"
            f" {reason or _of_pytorch()}; to train without them, set {RESOURCE}=none in the job's variables"
        ]
    )


def _wanted(environment: Mapping[str, str], resource: str) -> int:
    """Number of GPUs: those that the pod asked for, or fewer where the job itself lists some of them."""
    asked = environment.get(PER_NODE, "")
    listed = [_listed(environment[name]) for name in _HIDING[resource] if name in environment]
    return min([max(int(asked), 1) if asked.isdecimal() else 1, *(each for each in listed if each)])


def _listed(value: str) -> int:
    """Number of GPUs that a value of CUDA_VISIBLE_DEVICES lists; nothing after an invalid one counts."""
    names = [name.strip() for name in value.split(",")]
    invalid = [name in {"", "-1", "NoDevFiles"} for name in names]
    return invalid.index(True) if True in invalid else len(names)


def _hidden(environment: Mapping[str, str], resource: str) -> str:
    for name in _HIDING[resource]:
        if name in environment and not _listed(environment[name]):
            return f"{name}={environment[name]!r} hides all of them; remove it"
    return ""


def _nvidia() -> str:
    """Why PyTorch cannot use NVIDIA's GPUs; empty where the driver sees no fault."""
    import torch

    if torch.version.cuda is None:
        return f"PyTorch {torch.__version__} of this image is built without CUDA; use one built with it"
    try:
        driver = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        return _unloadable(error)
    version, count = ctypes.c_int(), ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    major, minor = version.value // 1000, version.value % 1000 // 10
    needed = int(torch.version.cuda.partition(".")[0])
    if major < needed:
        oldest = OLDEST_DRIVERS.get(needed)
        fix = f"driver {oldest} or newer" if oldest else "a newer driver"
        return (
            f"the node's driver supports CUDA {major}.{minor}, and PyTorch {torch.__version__} of this image"
            f" needs CUDA {needed}; install {fix} on the nodes, or use an image for CUDA {major}"
        )
    if code := driver.cuInit(0):
        meaning = _CUDA_ERRORS.get(code, "see the node's kernel log (dmesg) and nvidia-smi")
        return f"{_name(driver, code)}: {meaning}"
    driver.cuDeviceGetCount(ctypes.byref(count))
    return f"the driver shows {count.value} to this container; see nvidia-smi on the node"


def _unloadable(error: OSError) -> str:
    if (GKE_DRIVER / _LIBRARY).exists():
        return f"{_LIBRARY} is in {GKE_DRIVER}, where the loader does not look; add that to LD_LIBRARY_PATH"
    return (
        f"{error}; the node mounts the driver's libraries into containers: is the driver installed there, and"
        " does the image leave NVIDIA_DRIVER_CAPABILITIES unset or with compute?"
    )


def _name(driver: ctypes.CDLL, code: int) -> str:
    text = ctypes.c_char_p()
    driver.cuGetErrorName(code, ctypes.byref(text))
    return f"cuInit: {(text.value or b'error').decode()} ({code})"


def _amd() -> str:
    """Why PyTorch cannot use AMD's GPUs; empty where the device files show no fault."""
    import torch

    if torch.version.hip is None:
        return f"PyTorch {torch.__version__} of this image is built without ROCm; use one built with it"
    if not KFD.exists():
        return f"the container has no {KFD}: compare the pod's limits with the node's device plugin"
    closed = [each for each in (KFD, *sorted(RENDER_NODES.glob("renderD*"))) if not _is_open(each)]
    if not closed:
        return ""
    group = closed[0].stat().st_gid
    return (
        f"user {os.geteuid()} may not read and write {', '.join(map(str, closed))}, of group {group}; add"
        f" {group} to the pod's supplementalGroups (`amd.render_gid` of the stack file's provider), or open"
        ' them on the nodes by a udev rule: KERNEL=="kfd|renderD*", MODE="0666"'
    )


def _is_open(device: Path) -> bool:
    return os.access(device, os.R_OK | os.W_OK)


def _of_pytorch() -> str:
    """What PyTorch says itself."""
    import torch

    try:
        torch.cuda.init()
    except (AssertionError, RuntimeError) as error:
        return str(error).partition("\n")[0]
    return "PyTorch sees no fault"
