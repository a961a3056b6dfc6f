"""The device of the GPU benchmarks (a CPU if there is no GPU): its name, a wait for its queued work, and its
memory in use.
"""

from __future__ import annotations

import torch

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
MIB = 1 << 20


def where() -> str:
    """The GPU's name, or a note that this is a CPU."""
    return torch.cuda.get_device_name() if ON_GPU else "a CPU, tiny: shows that it runs"


def wait() -> None:
    """Wait until the device has finished all queued work."""
    if ON_GPU:
        torch.cuda.synchronize()


def used_bytes() -> int:
    """Bytes of the GPU's memory that all processes use; 0 without a GPU."""
    if not ON_GPU:
        return 0
    free, total = torch.cuda.mem_get_info()
    return total - free
