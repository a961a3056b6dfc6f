"""GPUs that a pod asked for and that cannot be used: the rank ends with the reason, before its first step.

The driver's library is a fake that is loaded by its name, as the driver's own; PyTorch is the real one.
"""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from tests.processes import free_port
from tests.training import launch
from tests.training.launch import Rank, server, settings
from trainyard_train.config_base import ConfigError
from trainyard_train.parallelism import accelerators
from trainyard_train.parallelism.accelerators import OLDEST_DRIVERS, check

EIGHT = {"TRAINYARD_ACCELERATOR": "nvidia.com/gpu", "TRAINYARD_ACCELERATORS_PER_NODE": "8"}
EIGHT_OF_AMD = {**EIGHT, "TRAINYARD_ACCELERATOR": "amd.com/gpu"}
DRIVER = """
#include <stdlib.h>
static int number(const char *name) { const char *text = getenv(name); return text ? atoi(text) : 0; }
int cuInit(unsigned flags) { return number("STAND_IN_INIT"); }
int cuDriverGetVersion(int *version) { *version = number("STAND_IN_VERSION"); return 0; }
int cuDeviceGetCount(int *count) { *count = 0; return 0; }
int cuGetErrorName(int error, const char **name) { *name = "CUDA_ERROR_OF_STAND_IN"; return 0; }
int cuGetProcAddress_v2(const char *name, void **address, int v, unsigned long flags, void *s) { return 500; }
"""


def _nothing(_: Path) -> None:
    """Change nothing."""


@dataclass(frozen=True)
class GpuFault:
    """A fault of a container or its node, as the process of a rank meets it."""

    reason: str
    asked: Mapping[str, str] = field(default_factory=lambda: EIGHT)
    driver: Mapping[str, str] | None = None
    """What the driver's library answers; None: there is none."""
    meet: Callable[[Path], None] = _nothing
    """Changes what a process finds, in that process."""


def driver_of(cuda: int, error: int = 0) -> dict[str, str]:
    return {"STAND_IN_VERSION": str(cuda), "STAND_IN_INIT": str(error)}


def _only_in_gkes_folder(folder: Path) -> None:
    (folder / "libcuda.so.1").touch()
    setattr(accelerators, "GKE_DRIVER", folder)  # noqa: B010 -- the constant is Final


def _without_cuda(_: Path) -> None:
    torch.version.cuda = None


def _with_rocm(folder: Path) -> None:
    torch.version.cuda, torch.version.hip = None, "7.2"
    accelerators.KFD = folder / "kfd"
    accelerators.RENDER_NODES = folder


def _closed(folder: Path) -> None:
    _with_rocm(folder)
    for name in ("kfd", "renderD128"):
        (folder / name).touch(mode=0o660)
    if os.geteuid() == 0:
        os.chown(folder / "kfd", 0, 4711)
    # As for user 1000, who is neither owner nor in the group; a test's user is either, or root.
    accelerators._is_open = lambda device: device.stat().st_mode & 0o6 == 0o6


def _one_is_left(_: Path) -> None:
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 1


GROUP = 4711 if os.geteuid() == 0 else os.getegid()
FAULTS = {
    "no-library": GpuFault("libcuda.so.1: cannot open shared object file"),
    "library-not-searched": GpuFault("where the loader does not look", meet=_only_in_gkes_folder),
    "old-driver": GpuFault(f"CUDA 12.8, and PyTorch {torch.__version__}", driver=driver_of(12080)),
    "no-device": GpuFault("(100): the container has no device file", driver=driver_of(13020, 100)),
    "no-fabric-manager": GpuFault("(802): the node's NVSwitches", driver=driver_of(13020, 802)),
    "another-kernel-module": GpuFault("(803): the library and the", driver=driver_of(13020, 803)),
    "unknown-error": GpuFault("CUDA_ERROR_OF_STAND_IN (999): see", driver=driver_of(13020, 999)),
    "hidden": GpuFault("CUDA_VISIBLE_DEVICES='' hides all", {**EIGHT, "CUDA_VISIBLE_DEVICES": ""}),
    "fewer": GpuFault("got 1 GPUs that PyTorch can use; allowed: 8", meet=_one_is_left),
    "built-without-cuda": GpuFault("is built without CUDA", meet=_without_cuda),
    "built-without-rocm": GpuFault("is built without ROCm", EIGHT_OF_AMD),
    "no-kfd": GpuFault("the container has no", EIGHT_OF_AMD, meet=_with_rocm),
    "closed-kfd": GpuFault(
        f"of group {GROUP}; add {GROUP} to the pod's supplemental", EIGHT_OF_AMD, meet=_closed
    ),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or pytest.skip("no C compiler: apt-get install gcc libc6-dev")
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.c").write_text(DRIVER)
    command = [compiler, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", "libcuda.so.1", "driver.c"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "libcuda.so.1"


def start(
    fault: GpuFault, tmp_path: Path, launched: Mapping[str, str], library: Path | None = None
) -> tuple[int | None, str]:
    """Start a run in a container with a fault; return its exit code and its output."""
    log = Path(tempfile.mkstemp(prefix="rank-")[1])
    environment = {**fault.asked, **(fault.driver or {}), **launched}
    (tmp_path / "container").mkdir()
    given = (fault.meet, tmp_path / "container", library if fault.driver else None, environment)
    process = server.Process(
        target=_meet, args=(*given, settings(tmp_path / "run", steps=2), log), daemon=True
    )
    process.start()
    return Rank(process, log).wait()


def _meet(
    meet: Callable[[Path], None],
    folder: Path,
    library: Path | None,
    environment: Mapping[str, str],
    arguments: list[str],
    log: Path,
) -> None:
    os.environ.update(environment)
    if library:
        ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    meet(folder)
    launch._main(environment, arguments, log, False)


@pytest.mark.parametrize("name", FAULTS)
def test_a_rank_that_cannot_use_its_gpus_ends_with_reasons(tmp_path: Path, library: Path, name: str) -> None:
    fault = FAULTS[name]
    code, output = start(fault, tmp_path, {}, library)
    assert (code, "Traceback" in output) == (2, False), output
    assert fault.reason in output
    assert "set TRAINYARD_ACCELERATOR=none" in output
    assert not (tmp_path / "run").exists()


LAUNCHED = {
    "agent": {"PET_NPROC_PER_NODE": "auto"},
    "agent-of-two": {"PET_NPROC_PER_NODE": "2"},
    "torchrun": {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"},
}


@pytest.mark.parametrize("way", LAUNCHED)
def test_however_ranks_are_started_the_reason_is_given_once(tmp_path: Path, way: str) -> None:
    launched = {**LAUNCHED[way], "MASTER_PORT": str(free_port())}
    code, output = start(FAULTS["no-library"], tmp_path, launched)
    assert (code, output.count("libcuda.so.1: cannot open")) == (2, 1), output
    assert not (tmp_path / "run").exists()


def test_a_program_that_knows_nothing_of_the_package_is_not_started_either(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("print('started')")
    command = [sys.executable, "-m", "trainyard_train", "run", str(tmp_path / "program.py")]
    done = subprocess.run(command, env=os.environ | EIGHT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "libcuda.so.1: cannot open" in done.stderr


def test_a_job_that_wants_no_gpu_trains_without(tmp_path: Path) -> None:
    wanted = GpuFault("", {**EIGHT, "TRAINYARD_ACCELERATOR": "none"})
    code, output = start(wanted, tmp_path, {})
    assert code == 0, output
    assert launch.reached(tmp_path / "run", 2)


@pytest.mark.parametrize(
    ("listed", "enough"),
    [("0", True), ("0,1", False), ("GPU-1,-1,GPU-2", True), ("-1", False), (None, False)],
)
def test_a_rank_needs_no_more_gpus_than_its_job_lists(
    monkeypatch: pytest.MonkeyPatch, listed: str | None, enough: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    environment = {**EIGHT, **({"CUDA_VISIBLE_DEVICES": listed} if listed else {})}
    if enough:
        check(environment)
    else:
        with pytest.raises(ConfigError, match="got 1 GPUs"):
            check(environment)


def test_the_oldest_driver_of_this_pytorch_is_known() -> None:
    assert int(str(torch.version.cuda).partition(".")[0]) in OLDEST_DRIVERS
