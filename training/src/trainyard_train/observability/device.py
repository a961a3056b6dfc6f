"""Gives the peak FLOPS of a device, the FLOP of a training step and the peak memory, and writes profiler
traces on request.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from trainyard_train.observability.rank_log import log_line

PEAKS: Final[Mapping[str, float]] = {
    "A100": 312e12,  # nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/nvidia-a100-datasheet.pdf
    "H100 PCIe": 756e12,  # NVIDIA H100 data sheet: 1,513 with sparsity
    "H100 NVL": 835e12,  # NVIDIA H100 NVL data sheet: 1,671 with sparsity
    "H100": 989e12,  # NVIDIA H100 data sheet, SXM: 1,979 with sparsity
    "H200 NVL": 835e12,  # NVIDIA H200 data sheet, NVL: 1,671 with sparsity
    "H200": 989e12,  # NVIDIA H200 data sheet, SXM: 1,979 with sparsity
    "B200": 2250e12,  # NVIDIA DGX B200 data sheet: 36 PFLOP/s with sparsity for eight, dense half of it
    "L4": 121e12,  # NVIDIA L4 data sheet: 242 with sparsity
    "L40S": 362e12,  # NVIDIA L40S data sheet: 362.05
    "MI300X": 1307e12,  # AMD Instinct MI300X data sheet: 1,307.4
}
"""Peak FLOP per second in bfloat16 and float16 without sparsity, by the vendors' data sheets."""
REQUEST: Final = "profile"
"""Creating this file in a run's folder requests a trace; it may hold the number of steps."""
TRACES: Final = "traces"
_STEPS: Final = 3
_MOST_STEPS: Final = 100


def peak_of(device: str, precision: str) -> float | None:
    """FLOP per second that a device could do, by its name; None where no source has it.

    In float32 it depends on whether matrices may be multiplied in TF32, so nothing is reported; nor for a
    MIG device, which has some of its GPU's multiprocessors.
    """
    words = f" {device} ".replace("-", " ")
    if precision == "float32" or " MIG " in words:
        return None
    known = [name for name in PEAKS if f" {name} " in words]
    return PEAKS[max(known, key=len)] if known else None


def flops_of(model: nn.Module, inputs: torch.Tensor) -> int:
    """FLOP of a training step on these inputs: three times the matrix products of the forward pass.

    The backward pass has two products for each of the forward pass. What is recomputed does not count.

    Args:
        model: on the device `meta`, not divided.
        inputs: on the device `meta`.
    """
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(inputs)
    return 3 * int(counter.get_total_flops())


def memory(device: torch.device) -> dict[str, int]:
    """Peaks in bytes since the process began: of tensors and what PyTorch holds, or of resident memory."""
    if device.type == "cuda":
        return {
            "allocated_peak_bytes": torch.cuda.max_memory_allocated(device),
            "reserved_peak_bytes": torch.cuda.max_memory_reserved(device),
        }
    unit = 1 if sys.platform == "darwin" else 1024  # of getrusage(2)
    return {"resident_peak_bytes": unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}


class Tracer:
    """Traces some steps of this rank whenever a file asks for it, for chrome://tracing or Perfetto."""

    def __init__(self, run_dir: Path, record: Callable[..., None]) -> None:
        self._request, self._traces, self._record = run_dir / REQUEST, run_dir / TRACES, record
        self._profiler: Any = None
        self._first = self._remaining_steps = 0
        self._trouble = ""

    def before(self, step: int) -> None:
        """Look for a request, before a step is taken."""
        if self._profiler is None and self._request.exists() and (steps := self._take()):
            self._first, self._remaining_steps = step, steps
            self._profiler = torch.profiler.profile()
            self._profiler.start()

    def after(self) -> None:
        """End the trace after the last of its steps, and write it."""
        if self._profiler is None:
            return
        self._remaining_steps -= 1
        if self._remaining_steps == 0:
            self.close()

    def close(self) -> None:
        """Write what there is."""
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return
        profiler.stop()
        path = self._traces / f"step-{self._first:08d}.json"
        try:
            self._traces.mkdir(exist_ok=True)
            profiler.export_chrome_trace(str(path))
        except (OSError, RuntimeError) as error:
            log_line(f"no trace: {path}: {error}")
            return
        self._record("trace", file=f"{TRACES}/{path.name}")

    def _take(self) -> int:
        """Number of steps that a request asks for; deletes the request, and asks for none where it cannot."""
        try:
            text = self._request.read_text(errors="replace").strip()
            self._request.unlink()
        except OSError as error:
            if (reason := str(error)) != self._trouble:  # once, not at every step
                self._trouble = reason
                log_line(f"no trace: {reason}; allowed: a file that this user may read and delete")
            return 0
        if not text:
            return _STEPS
        if text.isdecimal() and 1 <= int(text) <= _MOST_STEPS:
            return int(text)
        log_line(
            f"no trace: {self._request}: got {text[:40]!r}; allowed: 1 to {_MOST_STEPS} steps, or nothing"
        )
        return 0
