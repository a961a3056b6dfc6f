"""Prepares a process before training: deterministic algorithms, huge pages, PyTorch's flight recorder,
deferred import of the compiler.

Building any optimizer, or wrapping a model in DDP, imports `torch._dynamo` (and sympy, and 900 other modules)
only to mark functions as not to be compiled: more than half of the time to the first step. A substitute
module answers the few calls made without compiling; any other use imports the real module.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

_NAME: Final = "torch._dynamo"
_HUGE_PAGES: Final = "THP_MEM_ALLOC_ENABLE"
"""Variable that PyTorch reads at its first allocation (c10/core/alignment.h, c10/core/impl/alloc_cpu.cpp)."""


def defer_compiler() -> None:
    """Install the lazy module `_DeferredCompiler`, unless the compiler is loaded already."""
    import torch

    if _NAME not in sys.modules:
        stand_in = _DeferredCompiler()
        sys.modules[_NAME] = stand_in
        torch._dynamo = stand_in


def ask_for_huge_pages() -> None:
    """Have PyTorch ask the kernel for huge pages for large tensors on the CPU, unless the user has disabled
    it (0).

    New memory is mapped and freed page by page. A rank that is restarted in
    place waits for both: with a state of 515 MiB 0.3 s of 1.6. Call it before PyTorch is imported.
    """
    os.environ.setdefault(_HUGE_PAGES, "1")


@contextmanager
def deterministic(wanted: bool = True) -> Iterator[None]:
    """Make the same input give the same bits, or an error; cuBLAS must be configured before its first call.

    Args:
        wanted: if not, PyTorch chooses algorithms as it likes.
    """
    import torch

    cudnn = torch.backends.cudnn
    before = torch.get_deterministic_debug_mode(), cudnn.deterministic, cudnn.benchmark
    memory: Any = torch.utils.deterministic  # the attribute is a property of the module
    fills = memory.fill_uninitialized_memory
    if wanted:
        # Off: PyTorch would fill new memory with NaN, which takes time and helps only reads before writes.
        memory.fill_uninitialized_memory = False
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.set_deterministic_debug_mode("error")
        cudnn.deterministic, cudnn.benchmark = True, False
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before[0])
        cudnn.deterministic, cudnn.benchmark = before[1:]
        memory.fill_uninitialized_memory = fills


def record_collectives(folder: Path) -> None:
    """Record the last collectives (PyTorch's flight recorder); on a timeout NCCL writes them to `folder`.

    Call it before the process group is made. What a user has set stands.
    """
    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "2000")  # the default of PyTorch 2.15; 0 before
    os.environ.setdefault("TORCH_FR_DUMP_ON_TIMEOUT", "1")
    os.environ.setdefault("TORCH_FR_DUMP_TEMP_FILE", str(folder / "watchdog-flight-"))


class _DeferredCompiler(ModuleType):
    """`torch._dynamo` as seen by code that does not compile."""

    def __init__(self) -> None:
        super().__init__(_NAME)
        self.utils = _DeferredPart("utils", get_optimize_ddp_mode=lambda: "ddp_optimizer")
        self.trace_rules = _DeferredPart("trace_rules", clear_lru_cache=lambda: None)

    @staticmethod
    def disable(function: Callable[..., Any], *_: object, **__: object) -> Callable[..., Any]:
        """Nothing is traced, so there is nothing to disable."""
        return function

    @staticmethod
    def graph_break(*_: object, **__: object) -> None:
        """Nothing is traced, so there is no graph to break."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") and name != "__path__":  # __path__: someone imports a submodule
            raise AttributeError(name)
        return getattr(_load(), name)


class _DeferredPart:
    """A lazy submodule of the compiler, which answers a few functions without it."""

    def __init__(self, name: str, **answers: Callable[[], Any]) -> None:
        self._name = name
        self.__dict__.update(answers)

    def __getattr__(self, name: str) -> object:
        return getattr(getattr(_load(), self._name), name)


def _load() -> ModuleType:
    """Replace the lazy module by the real one."""
    if isinstance(sys.modules.get(_NAME), _DeferredCompiler):
        del sys.modules[_NAME]
        del sys.modules["torch"]._dynamo
    return importlib.import_module(_NAME)
